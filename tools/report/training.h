#pragma once
// `kevin report --train`: curves of training runs as text, from OUT/metrics.jsonl. Every number in its events
// becomes a curve, so that a new figure is shown without a change here.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trajectories/figures.h"

namespace kevin {

struct CurveValue {
  int64_t step = 0;
  double value = 0;
};

struct Curve {
  std::string name;                // as in the event; of parts of it "serial.best"
  std::vector<CurveValue> values;  // by step; of one step the last
};

// Events of one kind: the steps themselves, or the evaluations on one suite.
struct CurveGroup {
  std::string event;                                 // "step", "evaluation_step"
  std::string label;                                 // of an evaluation: its suite, split, ..., "core, dev"
  std::vector<Curve> curves;                         // in the order of the events
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

// Reads FOLDER/metrics.jsonl (or the file itself). A run is named by the last part of its path, or
// by the whole where two are equal. Throws Error(kBadRequest) where there is none, or no step in it.
std::vector<TrainingRun> ReadTrainingRuns(const std::vector<std::string>& folders);

// How a curve is named and printed.
struct CurveStyle {
  std::string label;  // the name itself for unknown curves
  bool is_share = false;
};
CurveStyle StyleOf(const std::string& name);
std::string CurveValueText(double value, const CurveStyle& style);  // "31.0 %", "0.0116", "27,290"

// Names of all curves of these groups: known ones in order of importance, then the others by first appearance.
std::vector<std::string> CurveNames(const std::vector<const CurveGroup*>& groups);

std::string TrainingText(const std::vector<TrainingRun>& runs);

}  // namespace kevin
