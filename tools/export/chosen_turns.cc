#include "tools/export/chosen_turns.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "agent/attribution/attribution.h"
#include "env/error.h"
#include "tools/run_choice.h"

namespace kevin {
namespace {

bool IsRight(const ChosenTurn& turn) {
  return turn.outcome == OutcomeKind::kMeasured && !std::isnan(turn.speedup);
}

}  // namespace

ChosenTurns::ChosenTurns(const RecordsRequest& request) {
  std::string problem, advice;
  for (const std::string& database : request.databases) {
    auto source = std::make_unique<Source>(Source{database, Store::Open(database, OpenMode::kRead), {}});
    std::vector<std::string> runs;
    for (const std::string& prefix : request.runs) {
      try {
        runs.push_back(FindRunId(source->store.ListRuns(), prefix, database));
      } catch (const Error& error) {
        problem = error.what(), advice = error.next_step();
      }
    }
    if (!request.runs.empty() && runs.empty()) continue;  // it may be in another one
    source->figures = source->store.LoadFigures(runs);
    sources_.push_back(std::move(source));
    AddSource(request, *sources_.back());
  }
  if (sources_.empty()) throw Error(ExitCode::kBadRequest, problem, advice);
  if (request.selection == Selection::kBest) KeepBest();
  std::erase_if(episodes_, [](const ChosenEpisode& e) { return e.turns.empty(); });
}

void ChosenTurns::AddSource(const RecordsRequest& request, Source& source) {
  const Attribution attribution = Attribute(request.scheme, ToAttributed(source.figures));
  size_t next = 0;
  for (const EpisodeFigures& e : source.figures.episodes) {
    ChosenEpisode chosen;
    chosen.store = &source.store;
    chosen.figures = &e;
    chosen.problem = &source.figures.problems[static_cast<size_t>(e.problem)];
    const bool is_wanted = chosen.problem->id.starts_with(request.problems);
    for (size_t i = e.first_turn; i < e.first_turn + e.turn_count; ++i) {
      const TurnFigures& t = source.figures.turns[i];
      if (t.turn == 0) continue;
      const ChosenTurn turn{t.turn, t.outcome, t.speedup, attribution.turns[next++]};
      const bool is_right = IsRight(turn) && turn.speedup >= request.min_speedup;
      if (is_wanted && (is_right || request.selection == Selection::kAll)) chosen.turns.push_back(turn);
    }
    episodes_.push_back(std::move(chosen));
  }
}

// Of each problem the turn that is fastest; a confirmed winner counts with its confirmed speed-up.
void ChosenTurns::KeepBest() {
  struct Best {
    size_t episode = 0, turn = 0;
    double speedup = 0;
  };
  std::map<std::string, Best> best;
  for (size_t e = 0; e < episodes_.size(); ++e) {
    const EpisodeFigures& figures = *episodes_[e].figures;
    for (size_t t = 0; t < episodes_[e].turns.size(); ++t) {
      const bool is_winner =
          episodes_[e].turns[t].turn == figures.best_turn && !std::isnan(figures.best_speedup);
      if (figures.best_turn >= 0 && !is_winner) continue;
      const double speedup = is_winner ? figures.best_speedup : episodes_[e].turns[t].speedup;
      Best& leader = best[episodes_[e].problem->id];
      if (speedup > leader.speedup) leader = {e, t, speedup};
    }
  }
  std::vector<std::vector<ChosenTurn>> kept(episodes_.size());
  for (const auto& [problem, leader] : best) {
    if (leader.speedup > 0) kept[leader.episode].push_back(episodes_[leader.episode].turns[leader.turn]);
  }
  for (size_t e = 0; e < episodes_.size(); ++e) episodes_[e].turns = std::move(kept[e]);
}

int64_t ChosenTurns::turns() const {
  int64_t count = 0;
  for (const ChosenEpisode& e : episodes_) count += static_cast<int64_t>(e.turns.size());
  return count;
}

}  // namespace kevin
