#include "agent/ranking.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "env/verdict/words.h"

namespace kevin {
namespace {

const TurnRecord* TurnNumbered(const std::vector<TurnRecord>& turns, int number) {
  const auto found =
      std::find_if(turns.begin(), turns.end(), [&](const TurnRecord& t) { return t.turn == number; });
  return found == turns.end() ? nullptr : &*found;
}

// The turn itself with ratio 1, the turn that it was compared with, and so on to the beginning.
std::vector<std::pair<int, Ratio>> ChainFrom(const std::vector<TurnRecord>& turns, int number) {
  std::vector<std::pair<int, Ratio>> chain{{number, Ratio{1, 1, 1}}};
  const TurnRecord* turn = TurnNumbered(turns, number);
  while (turn != nullptr && turn->evaluation.against_best && turn->evaluation.against_best_turn) {
    const int next = *turn->evaluation.against_best_turn;
    if (next >= turn->turn) break;  // no record of ours
    chain.emplace_back(next, Product(chain.back().second, *turn->evaluation.against_best));
    turn = TurnNumbered(turns, next);
  }
  return chain;
}

// By the speed-ups over eager, which share no pairs.
std::optional<Ratio> CompareUnpaired(const TurnRecord& a, const TurnRecord& b) {
  const bool is_new = a.evaluation.cached_from.empty() && !a.evaluation.against_best;
  if (!is_new || !a.evaluation.speedup || !b.evaluation.speedup) return std::nullopt;
  return Product(*a.evaluation.speedup, Inverse(*b.evaluation.speedup));
}

std::optional<Ratio> CompareInAnyWay(const std::vector<TurnRecord>& turns, const TurnRecord& a,
                                     const TurnRecord& b) {
  const std::optional<Ratio> paired = CompareTurns(turns, a.turn, b.turn);
  return paired ? paired : CompareUnpaired(a, b);
}

}  // namespace

bool IsCorrectTurn(const TurnRecord& turn) {
  return turn.evaluation.correct && turn.evaluation.speedup.has_value();
}

Ratio Product(const Ratio& a, const Ratio& b) {
  Ratio product;
  product.value = a.value * b.value;
  product.low = product.value / std::exp(std::hypot(std::log(a.value / a.low), std::log(b.value / b.low)));
  product.high = product.value * std::exp(std::hypot(std::log(a.high / a.value), std::log(b.high / b.value)));
  product.log_se = std::hypot(a.log_se, b.log_se);
  return product;
}

Ratio Inverse(const Ratio& a) {
  Ratio inverse = a;
  inverse.value = 1 / a.value, inverse.low = 1 / a.high, inverse.high = 1 / a.low;
  return inverse;
}

std::optional<Ratio> CompareTurns(const std::vector<TurnRecord>& turns, int a, int b) {
  const auto from_a = ChainFrom(turns, a), from_b = ChainFrom(turns, b);
  for (const auto& [number, ratio] : from_a) {
    for (const auto& [other, other_ratio] : from_b) {
      if (number != other) continue;
      if (other == b) return ratio;  // without a second factor
      return Product(ratio, Inverse(other_ratio));
    }
  }
  return std::nullopt;
}

const TurnRecord* LeaderOf(const std::vector<TurnRecord>& turns) {
  const TurnRecord* leader = nullptr;
  for (const TurnRecord& turn : turns) {
    if (!IsCorrectTurn(turn)) continue;
    const auto ratio = leader == nullptr ? std::nullopt : CompareInAnyWay(turns, turn, *leader);
    if (leader == nullptr || (ratio && StandingOf(*ratio) == Standing::kFaster)) leader = &turn;
  }
  return leader;
}

std::vector<int> RankingOf(const std::vector<TurnRecord>& turns) {
  const TurnRecord* leader = LeaderOf(turns);
  if (leader == nullptr) return {};
  std::vector<std::pair<double, int>> challengers;
  std::set<std::string> seen{leader->evaluation.candidate_hash};
  for (const TurnRecord& turn : turns) {
    if (!IsCorrectTurn(turn) || !seen.insert(turn.evaluation.candidate_hash).second) continue;
    const auto ratio = CompareInAnyWay(turns, turn, *leader);
    const bool may_be_faster = ratio && ratio->value > 1 && StandingOf(*ratio) != Standing::kSame;
    if (may_be_faster) challengers.emplace_back(ratio->value, turn.turn);
  }
  std::stable_sort(challengers.begin(), challengers.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<int> ranking{leader->turn};
  for (const auto& [ratio, number] : challengers) ranking.push_back(number);
  return ranking;
}

}  // namespace kevin
