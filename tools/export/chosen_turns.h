#pragma once
// The turns that an export is about, with what attribution gives them, without their texts.

#include <memory>
#include <string>
#include <vector>

#include "tools/export/records.h"
#include "trajectories/figures.h"

namespace kevin {

struct ChosenTurn {
  int turn = 0;
  OutcomeKind outcome = OutcomeKind::kParseFailed;
  double speedup = kNotKnown;
  TurnAttribution attribution;
};

struct ChosenEpisode {
  Store* store = nullptr;  // not owned
  const EpisodeFigures* figures = nullptr;
  const ProblemFigures* problem = nullptr;
  std::vector<ChosenTurn> turns;  // those that were selected, in order; never turn 0
};

// All databases of `request`, open while this lives.
class ChosenTurns {
 public:
  explicit ChosenTurns(const RecordsRequest& request);
  const std::vector<ChosenEpisode>& episodes() const { return episodes_; }
  int64_t turns() const;

 private:
  struct Source {
    std::string database;
    Store store;
    Figures figures;
  };
  void AddSource(const RecordsRequest& request, Source& source);
  void KeepBest();

  std::vector<std::unique_ptr<Source>> sources_;
  std::vector<ChosenEpisode> episodes_;
};

}  // namespace kevin
