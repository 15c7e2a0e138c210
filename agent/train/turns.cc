#include "agent/train/turns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "agent/attribution/attribution.h"
#include "agent/attribution/shaping.h"
#include "agent/text.h"
#include "agent/train/model_text.h"
#include "env/error.h"
#include "policies/local/train/batch.h"
#include "trajectories/blob.h"

namespace kevin {
namespace {

std::string DatabaseNames(const LearnRequest& request) {
  std::vector<std::string> names;
  for (const LearnRequest::Source& source : request.sources) names.push_back(source.database);
  return fmt::format("{}", fmt::join(names, ", "));
}

using Turns = std::vector<LearnTurn>;

bool IsBetter(const LearnTurn& better, const LearnTurn& worse, double noise) {
  const Scored &b = better.attribution.score, &w = worse.attribution.score;
  return b.score - w.score > std::max(1e-9, noise * std::hypot(b.se, w.se));
}

double ScoreOfTurn(const LearnTurn& turn) { return turn.attribution.score.score; }

Units WholeRollouts(const Turns& turns, const UnitOptions& options) {
  std::map<int, Unit> tasks;
  for (size_t i = 0; i < turns.size(); ++i) tasks[turns[i].task].turns.push_back(i);
  Units made;
  for (auto& [task, unit] : tasks) {
    const bool differs = std::any_of(unit.turns.begin(), unit.turns.end(),
                                     [&](size_t i) { return turns[i].attribution.advantage != 0; });
    if (differs || options.keep_flat) {
      made.units.push_back(std::move(unit));
    } else {
      ++made.dropped;
    }
  }
  return made;
}

Units Answers(const Turns& turns, Picked picked, const UnitOptions& options) {
  // Problem, kind, device, size, rules.
  using Question = std::tuple<std::string, std::string, std::string, std::string, std::string>;
  std::map<Question, size_t> best;
  Units made;
  for (size_t i = 0; i < turns.size(); ++i) {
    const LearnTurn& t = turns[i];
    const bool fits = t.correct && !(t.speedup < options.min_speedup);
    if (t.cut_off || (picked != Picked::kAll && !fits)) {
      ++made.dropped;
    } else if (picked != Picked::kBest) {
      made.units.push_back({{i}});
    } else if (const auto [leader, is_first] =
                   best.try_emplace({t.problem->id, t.episode->kind, t.episode->device,
                                     t.episode->workload.size, t.episode->workload.rules},
                                    i);
               !is_first) {
      ++made.dropped;
      if (t.speedup > turns[leader->second].speedup) leader->second = i;
    }
  }
  for (const auto& [question, i] : best) made.units.push_back({{i}});
  return made;
}

void AddLadders(const Turns& turns, const std::vector<size_t>& episode, double noise, Units* made) {
  for (size_t k = 0; k + 1 < episode.size(); ++k) {
    const auto later =
        std::max_element(episode.begin() + static_cast<long>(k) + 1, episode.end(),
                         [&](size_t a, size_t b) { return ScoreOfTurn(turns[a]) < ScoreOfTurn(turns[b]); });
    if (IsBetter(turns[*later], turns[episode[k]], noise)) {
      made->units.push_back({{episode[k], *later, episode[k]}});
    } else {
      ++made->dropped;
    }
  }
}

void AddFirstTurns(const Turns& turns, const std::vector<size_t>& firsts, double noise, Units* made) {
  const auto best = std::max_element(firsts.begin(), firsts.end(), [&](size_t a, size_t b) {
    return ScoreOfTurn(turns[a]) < ScoreOfTurn(turns[b]);
  });
  for (const size_t i : firsts) {
    if (i == *best) continue;
    if (IsBetter(turns[*best], turns[i], noise)) {
      made->units.push_back({{i, *best, i}});
    } else {
      ++made->dropped;
    }
  }
}

Units Pairs(const Turns& turns, double noise) {
  std::map<std::string, std::vector<size_t>> episodes;
  std::map<int, std::vector<size_t>> firsts;
  for (size_t i = 0; i < turns.size(); ++i) {
    if (turns[i].cut_off) continue;
    episodes[turns[i].episode->id].push_back(i);
    if (turns[i].turn == 1) firsts[turns[i].task].push_back(i);
  }
  Units made;
  for (const auto& [id, episode] : episodes) AddLadders(turns, episode, noise, &made);
  for (const auto& [task, list] : firsts) AddFirstTurns(turns, list, noise, &made);
  return made;
}

bool MadeBy(const RecordFilter& filter, const std::string& model) {
  if (model.find(filter.model) == std::string::npos) return false;
  if (filter.last_version < 0) return true;
  const auto version = VersionOfModel(model);
  return version && *version >= filter.first_version && *version <= filter.last_version;
}

bool Matches(const RecordFilter& filter, const Figures& figures, const EpisodeFigures& e) {
  const auto is_in = [](const std::vector<std::string>& list, const std::string& name) {
    return list.empty() || std::ranges::find(list, name) != list.end();
  };
  if (!filter.kind.empty() && e.kind != filter.kind) return false;
  if (!filter.rules.empty() && e.workload.rules != filter.rules) return false;
  if (e.device.find(filter.device) == std::string::npos) return false;
  if (e.started_at < filter.since || (!filter.until.empty() && e.started_at >= filter.until)) return false;
  if (!is_in(filter.states, e.state)) return false;
  if (!is_in(filter.problem_ids, figures.problems[static_cast<size_t>(e.problem)].id)) return false;
  if (filter.model.empty() && filter.last_version < 0) return true;
  for (size_t i = e.first_turn; i < e.first_turn + e.turn_count; ++i) {
    const TurnFigures& t = figures.turns[i];
    if (t.turn > 0 && !MadeBy(filter, figures.models[static_cast<size_t>(t.model)])) return false;
  }
  return true;
}

}  // namespace

void LearnTurns::LeaveOutEpisodes(const LearnRequest& request, Figures* figures) {
  if (!request.evaluated_by.empty())
    std::erase_if(figures->episodes,
                  [&](const EpisodeFigures& e) { return e.policy == request.evaluated_by; });
  filtered_ += static_cast<int64_t>(std::erase_if(
      figures->episodes, [&](const EpisodeFigures& e) { return !Matches(request.filter, *figures, e); }));
  const bool needs_all = request.leave_out == LeaveOut::kEpisodes && NeedsLaterTurns(request.scheme);
  if (!needs_all || !request.filter.states.empty()) return;
  for (const auto& [state, episodes] : LeaveOutUnfinished(figures)) unfinished_[state] += episodes;
}

void LearnTurns::Remark() {
  if (filtered_ > 0) remarks_.push_back(Counted(filtered_, "episode") + " left out by the filters");
  const std::string unfinished = UnfinishedText(unfinished_);
  if (!unfinished.empty())
    remarks_.push_back(
        unfinished + "; --episode-state keeps those of the named states, valued by the turns that are there");
}

LearnTurns::LearnTurns(const LearnRequest& request) {
  LeftOutVerdicts left_out;
  std::vector<std::string> databases;
  for (const LearnRequest::Source& one : request.sources) {
    auto source = std::make_unique<Source>(Source{Store::Open(one.database, OpenMode::kRead), {}});
    source->figures = source->store.LoadFigures(one.runs);
    databases.push_back(one.database);
    left_out += LeaveOutDoubtful(request.leave_out, request.accept, &source->figures);
    LeaveOutEpisodes(request, &source->figures);
    sources_.push_back(std::move(source));
    Add(request, *sources_.back());
  }
  left_out_ = LeftOutText(left_out, databases);
  Remark();
  if (turns_.empty() && !request.may_be_empty) {
    std::vector<std::string> why = remarks_;
    if (!left_out_.empty()) why.push_back(left_out_);
    if (why.empty()) why.emplace_back("kevin show lists the episodes; kevin collect makes some");
    throw Error(ExitCode::kBadRequest, DatabaseNames(request) + ": there are no turns to learn from",
                fmt::format("{}", fmt::join(why, "; ")));
  }
  std::set<std::string> learnt;
  for (const LearnTurn& turn : turns_) learnt.insert(turn.problem->id);
  const std::vector<std::string> both = CommonIds({learnt.begin(), learnt.end()}, request.held_out);
  if (both.empty()) return;
  throw Error(ExitCode::kBadRequest,
              fmt::format("{} of the problems held out for evaluation are in the training records: {}",
                          both.size(), ShortList(both)),
              "leave them out of training with --without and the same suite");
}

void LearnTurns::Add(const LearnRequest& request, Source& source) {
  const std::vector<AttributedEpisode> episodes =
      ToAttributed(source.figures, request.scheme.score, source.store);
  const Attribution attribution = Attribute(request.scheme, episodes);
  groups_ += attribution.groups, flat_groups_ += attribution.flat_groups;
  const auto first_task = static_cast<int>(tasks_);
  size_t next = 0;
  for (size_t e = 0; e < episodes.size(); ++e) {
    const EpisodeFigures& figures = source.figures.episodes[e];
    const ProblemFigures& problem = source.figures.problems[static_cast<size_t>(figures.problem)];
    const bool wanted = problem.id.starts_with(request.problems) &&
                        std::ranges::find(request.left_out, problem.id) == request.left_out.end();
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

std::vector<std::string> CommonIds(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::vector<std::string> both;
  std::ranges::copy_if(a, std::back_inserter(both),
                       [&](const std::string& id) { return std::ranges::find(b, id) != b.end(); });
  return both;
}

std::string ShortList(const std::vector<std::string>& ids) {
  const auto end = std::next(ids.begin(), static_cast<long>(std::min<size_t>(ids.size(), 5)));
  return fmt::format("{}{}", fmt::join(ids.begin(), end, ", "), end == ids.end() ? "" : ", ...");
}

Units MakeUnits(const Algorithm& algorithm, const LearnTurns& turns, const UnitOptions& options) {
  switch (algorithm.material) {
    case Material::kRollouts:
      return WholeRollouts(turns.turns(), options);
    case Material::kAnswers:
      return Answers(turns.turns(), algorithm.picked, options);
    case Material::kPairs:
      return Pairs(turns.turns(), options.noise);
  }
  return {};
}

std::string FingerprintOf(const LearnTurns& turns, const Units& units) {
  std::string text;
  for (const Unit& unit : units.units) {
    for (const size_t i : unit.turns) {
      const LearnTurn& t = turns.turns()[i];
      text += fmt::format("{} {} {} {} {},", t.episode->id, t.turn, t.correct, t.cut_off, t.speedup);
    }
    text += '\n';
  }
  return ContentHash(text).substr(0, 16);
}

int64_t StepsPerEpoch(size_t units, size_t per_step) {
  const size_t size = std::min(units, per_step);
  return static_cast<int64_t>((units + size - 1) / size);
}

std::vector<size_t> UnitsOfStep(size_t units, size_t per_step, int64_t step, uint64_t seed) {
  const size_t size = std::min(units, per_step);
  const int64_t steps = StepsPerEpoch(units, per_step), epoch = (step - 1) / steps;
  const std::vector<size_t> order = local::Shuffled(units, seed, static_cast<uint64_t>(epoch));
  const size_t first = static_cast<size_t>((step - 1) % steps) * size, last = std::min(units, first + size);
  return {order.begin() + static_cast<long>(first), order.begin() + static_cast<long>(last)};
}

}  // namespace kevin
