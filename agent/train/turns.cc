#include "agent/train/turns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "agent/attribution/figures.h"
#include "env/error.h"

namespace kevin {
namespace {

bool TurnNames(const std::vector<std::string>& ids, const std::string& id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

std::string DatabaseNames(const LearnRequest& request) {
  std::vector<std::string> names;
  for (const LearnRequest::Source& source : request.sources) names.push_back(source.database);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

LearnTurns::LearnTurns(const LearnRequest& request) {
  for (const LearnRequest::Source& one : request.sources) {
    auto source = std::make_unique<Source>(Source{Store::Open(one.database, OpenMode::kRead), {}});
    source->figures = source->store.LoadFigures(one.runs);
    sources_.push_back(std::move(source));
    Add(request, *sources_.back());
  }
  if (turns_.empty()) {
    throw Error(ExitCode::kBadRequest, DatabaseNames(request) + ": there are no turns to learn from",
                "kevin show lists the episodes; kevin collect makes some");
  }
  CheckHeldOut(request);
}

void LearnTurns::Add(const LearnRequest& request, Source& source) {
  const std::vector<AttributedEpisode> episodes = ToAttributed(source.figures);
  const Attribution attribution = Attribute(request.scheme, episodes);
  groups_ += attribution.groups, flat_groups_ += attribution.flat_groups;
  const auto first_task = static_cast<int>(tasks_);
  size_t next = 0;
  for (size_t e = 0; e < episodes.size(); ++e) {
    const EpisodeFigures& figures = source.figures.episodes[e];
    const ProblemFigures& problem = source.figures.problems[static_cast<size_t>(figures.problem)];
    const bool wanted = problem.id.starts_with(request.problems) && !TurnNames(request.left_out, problem.id);
    for (size_t i = figures.first_turn; i < figures.first_turn + figures.turn_count; ++i) {
      const TurnFigures& t = source.figures.turns[i];
      if (t.turn == 0) continue;
      const TurnAttribution& earned = attribution.turns[next++];
      if (!wanted) continue;
      turns_.push_back({&source.store, &figures, &problem, first_task + episodes[e].task, t.turn, t.correct,
                        t.cut_off, t.speedup, earned});
      tasks_ = std::max<int64_t>(tasks_, first_task + episodes[e].task + 1);
    }
  }
}

void LearnTurns::CheckHeldOut(const LearnRequest& request) const {
  std::set<std::string> both;
  for (const LearnTurn& turn : turns_) {
    if (TurnNames(request.held_out, turn.problem->id)) both.insert(turn.problem->id);
  }
  if (both.empty()) return;
  const size_t shown = std::min<size_t>(both.size(), 5);
  const std::vector<std::string> some(both.begin(), std::next(both.begin(), static_cast<long>(shown)));
  throw Error(ExitCode::kBadRequest,
              fmt::format("{} of the problems held out for evaluation are in the training records: {}{}",
                          both.size(), fmt::join(some, ", "), both.size() > shown ? ", ..." : ""),
              "leave them out of training with --without and the same suite");
}

}  // namespace kevin
