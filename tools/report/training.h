#pragma once
// START HERE for `kevin report --train`: curves of training runs out of OUT/metrics.jsonl. Whatever numbers
// are in its events become curves, so that new ones show without a change here.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "agent/events.h"
#include "trajectories/figures.h"

namespace kevin {

struct CurveValue {
  int64_t step = 0;
  double value = 0;
  double low = kNotKnown, high = kNotKnown;  // equal to value: no interval
};

struct Curve {
  std::string name;                // as in the event; of parts of it "serial.best"
  std::vector<CurveValue> values;  // by step; of one step the last
};

// Events of one kind: the steps themselves, or the evaluations on one suite.
struct CurveGroup {
  std::string event;          // "step", "evaluation_step"
  std::string label;          // of others than steps: what tells them apart, "core, dev"
  std::vector<Curve> curves;  // in the order of the events
  const Curve* Find(const std::string& name) const;  // null: there is none
};

struct TrainingRun {
  std::string name, folder;
  int64_t first_step = 0, last_step = 0, steps_asked = 0;  // steps_asked 0: unknown
  double seconds = 0;                                      // of its steps together
  CurveGroup steps;
  std::vector<CurveGroup> others;
  int64_t unreadable = 0;  // lines that are no events
};

// Reads FOLDER/metrics.jsonl (or the file itself). Runs with the same last part of their paths are told apart
// by the whole. Throws Error(kBadRequest) where there is none, or no step in it.
std::vector<TrainingRun> ReadTrainingRuns(const std::vector<std::string>& folders);

// How a curve is called and shown.
struct CurveStyle {
  std::string label;
  bool is_share = false;
  bool from_zero = false;  // its axis begins at 0
  double mark = 0;         // a line across; 0: none
};
CurveStyle StyleOf(const std::string& name);

// Names of all curves of these groups: those that matter most first, then the others by first appearance.
std::vector<std::string> CurveNames(const std::vector<const CurveGroup*>& groups);

std::string TrainingText(const std::vector<TrainingRun>& runs);

// One object a run: `event` "report", `part` "training", `run`, `folder`, `steps`, `seconds`, `curves` (by
// name: lists [step, value]) and `evaluations` (a list of `event`, `label`, `curves`).
std::vector<Json> TrainingEvents(const std::vector<TrainingRun>& runs);

// One self-contained page.
std::string TrainingPage(const std::vector<TrainingRun>& runs);

}  // namespace kevin
