#pragma once
// The turns that a training run may learn from, with what attribution gives them and without their texts,
// which are read when a batch needs them.

#include <memory>
#include <string>
#include <vector>

#include "agent/attribution/attribution.h"
#include "trajectories/store.h"

namespace kevin {

struct LearnRequest {
  struct Source {
    std::string database;
    std::vector<std::string> runs;  // full ids; empty: all
  };
  std::vector<Source> sources;
  std::string problems;               // only ids that begin so
  std::vector<std::string> left_out;  // problem ids that are not learnt from
  std::vector<std::string> held_out;  // problem ids that must not be there at all: of the evaluation
  Scheme scheme;
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

// All databases of a request, open while this lives.
class LearnTurns {
 public:
  // Throws Error(kBadRequest): nothing to learn from, or held-out problems among what there is.
  explicit LearnTurns(const LearnRequest& request);
  const std::vector<LearnTurn>& turns() const { return turns_; }  // by database, episode, turn; never turn 0
  int64_t tasks() const { return tasks_; }
  int64_t groups() const { return groups_; }
  int64_t flat_groups() const { return flat_groups_; }

 private:
  struct Source {
    Store store;
    Figures figures;
  };
  void Add(const LearnRequest& request, Source& source);
  void CheckHeldOut(const LearnRequest& request) const;

  std::vector<std::unique_ptr<Source>> sources_;
  std::vector<LearnTurn> turns_;
  int64_t tasks_ = 0, groups_ = 0, flat_groups_ = 0;
};

}  // namespace kevin
