#include "agent/train/units.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "policies/local/train/batch.h"

namespace kevin {
namespace {

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
  std::map<std::string, size_t> best;  // by problem
  Units made;
  for (size_t i = 0; i < turns.size(); ++i) {
    const LearnTurn& t = turns[i];
    const bool right = t.correct && !(t.speedup < options.min_speedup);
    if (t.cut_off || (picked != Picked::kAll && !right)) {
      ++made.dropped;
    } else if (picked != Picked::kBest) {
      made.units.push_back({{i}});
    } else if (const auto [leader, is_first] = best.try_emplace(t.problem->id, i); !is_first) {
      ++made.dropped;
      if (t.speedup > turns[leader->second].speedup) leader->second = i;
    }
  }
  for (const auto& [problem, i] : best) made.units.push_back({{i}});
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

}  // namespace

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
