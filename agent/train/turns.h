#pragma once
// The turns that a training run may learn from, with their attribution, and the units in which they are
// learnt from. Texts are read later, when a batch needs them.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/attribution/attribution.h"
#include "agent/train/algorithm.h"
#include "trajectories/store.h"

namespace kevin {

// --- Turns ---

// Which episodes are learnt from. Empty members say nothing.
struct RecordFilter {
  std::string kind = {};      // of the candidates
  std::string rules = {};     // of the verdicts: Workload::rules
  std::string device = {};    // a part of the judging device's name: "H200"
  std::string model = {};     // a part of the name of the model that made each of its turns
  int64_t first_version = 0;  // of a model in training, in steps (VersionedModel)
  int64_t last_version = -1;  // -1: any model
  std::string since = {},
              until = {};  // of its start: UTC, "2026-11-21" or "2026-11-21T09:40"; until: before it
  std::vector<std::string> states = {};       // "running", "done", "interrupted", "failed"
  std::vector<std::string> problem_ids = {};  // only these
  bool operator==(const RecordFilter&) const = default;
};

struct LearnRequest {
  struct Source {
    std::string database;
    std::vector<std::string> runs;  // full ids; empty: all
  };
  std::vector<Source> sources;
  std::string problems;  // only ids with this prefix
  std::string
      evaluated_by;  // the policy under which this run evaluates itself: its episodes are not learnt from
  RecordFilter filter;
  std::vector<std::string> left_out;  // problem ids that are not learnt from
  std::vector<std::string> held_out;  // problem ids of the evaluation: an error if one of them occurs
  Scheme scheme;
  bool may_be_empty = false;  // no turn is no error
  AcceptedVerdicts accept;    // of doubtful ones
  // Of them, whole episodes are left out, because returns need all turns; for answers only the turns.
  // Unfinished episodes (not "done") are then left out too, unless the filter names states: a turn's return would
  // count their missing turns as 0.
  LeaveOut leave_out = LeaveOut::kEpisodes;
};

struct LearnTurn {
  Store* store = nullptr;  // not owned
  const EpisodeFigures* episode = nullptr;
  const ProblemFigures* problem = nullptr;
  int task = 0;  // equal for turns that are compared, unique over all databases
  int turn = 0;
  bool correct = false, cut_off = false;
  double speedup = kNotKnown;
  TurnAttribution attribution;
};

// The turns of a request; its databases stay open while this exists.
class LearnTurns {
 public:
  // Throws Error(kBadRequest) where there is no turn, or a held-out problem is among the turns.
  explicit LearnTurns(const LearnRequest& request);
  const std::vector<LearnTurn>& turns() const { return turns_; }  // by database, episode, turn; never turn 0
  int64_t tasks() const { return tasks_; }
  int64_t groups() const { return groups_; }
  int64_t flat_groups() const { return flat_groups_; }
  const std::string& left_out() const {
    return left_out_;
  }  // which verdicts were, in a sentence; empty: none
  const std::vector<std::string>& remarks() const { return remarks_; }  // which episodes were, in sentences

 private:
  struct Source {
    Store store;
    Figures figures;
  };
  void Add(const LearnRequest& request, Source& source);
  void LeaveOutEpisodes(const LearnRequest& request, Figures* figures);
  void Remark();

  std::vector<std::unique_ptr<Source>> sources_;
  std::vector<LearnTurn> turns_;
  int64_t tasks_ = 0, groups_ = 0, flat_groups_ = 0;
  std::string left_out_;
  std::vector<std::string> remarks_;
  Unfinished unfinished_;
  int64_t filtered_ = 0;  // episodes
};

// The ids of `a` that `b` has too.
std::vector<std::string> CommonIds(const std::vector<std::string>& a, const std::vector<std::string>& b);
// "a, b, c", with ", ..." after the fifth id.
std::string ShortList(const std::vector<std::string>& ids);

// --- Units ---

// Indices into LearnTurns::turns():
//   rollouts   all turns of one task: m episodes of n turns
//   answers    one turn
//   pairs      {p, c, r}: to the prompt of turn p, the reply of turn c is better than that of turn r
struct Unit {
  std::vector<size_t> turns;
};

struct UnitOptions {
  double noise = 2;        // pairs: scores differ by more than this many standard errors
  double min_speedup = 0;  // answers: of correct kernels
  bool keep_flat = false;  // rollouts: also tasks whose turns do not differ
};

struct Units {
  std::vector<Unit> units;
  int64_t dropped = 0;  // tasks without a difference, turns not picked, prompts without a pair
  // Units without a usable sample (WithoutUnusable, batches.h).
  int64_t too_long = 0, voided = 0, cut_off = 0, without_tokens = 0;
  int64_t unknown_sampling = 0, greedy = 0, filtered = 0;  // turns (WithoutUnusable; BatchFacts)
  int64_t longest_tokens = 0;                              // LearntData (WithoutUnusable)
};

// Rollouts: tasks whose advantages are all 0 teach nothing and are dropped. Answers: cut-off replies are
// never imitated; Picked::kBest takes the fastest correct turn of each problem, kind, device, size
// and rules over all databases. Pairs:
// turn t of an episode against its best later turn, if that is better, on the prompt of turn t; and the best
// first turn of a task against each worse first turn, whose prompt is the same.
Units MakeUnits(const Algorithm& algorithm, const LearnTurns& turns, const UnitOptions& options);

// Which units these are, in their order, by episodes, turns and what was measured of them: 16 hexadecimal digits.
std::string FingerprintOf(const LearnTurns& turns, const Units& units);

// The units of step `step` (from 1). Every epoch takes each unit once, in its own order; no unit occurs twice
// in a step.
std::vector<size_t> UnitsOfStep(size_t units, size_t per_step, int64_t step, uint64_t seed);
// Steps of one epoch.
int64_t StepsPerEpoch(size_t units, size_t per_step);

}  // namespace kevin
