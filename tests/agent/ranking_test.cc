#include "agent/ranking.h"

#include <cmath>

#include "tests/catch.h"

namespace kevin {
namespace {

Ratio Around(double value, double width = 0.01) { return {value, value / (1 + width), value * (1 + width)}; }

// Correct, with this speed-up over eager; compared with turn `against` (-1: with none).
TurnRecord Turn(int number, double speedup, int against = -1, double ratio = 1, double width = 0.01) {
  TurnRecord turn;
  turn.turn = number;
  turn.evaluation.correct = true;
  turn.evaluation.candidate_hash = std::to_string(number);
  turn.evaluation.speedup = Around(speedup, width);
  if (against >= 0) {
    turn.evaluation.against_best = Around(ratio, width);
    turn.evaluation.against_best_turn = against;
  }
  return turn;
}

int Leader(const std::vector<TurnRecord>& turns) {
  const TurnRecord* leader = LeaderOf(turns);
  return leader == nullptr ? -1 : leader->turn;
}

}  // namespace

TEST_CASE("intervals of independent ratios add up in quadrature") {
  const Ratio product = Product(Around(2, 0.03), Around(1.5, 0.04));
  CHECK(product.value == Approx(3));
  CHECK(std::log(product.high / 3) == Approx(std::hypot(std::log(1.03), std::log(1.04))));
  CHECK(std::log(3 / product.low) == Approx(std::hypot(std::log(1.03), std::log(1.04))));
  const Ratio inverse = Inverse({2, 1.6, 2.5});
  CHECK((inverse.value == 0.5 && inverse.low == 0.4 && inverse.high == 0.625));
}

TEST_CASE("the lead changes only where the comparison says so, whatever the speed-ups over eager read") {
  CHECK(Leader({}) == -1);
  // Turn 2 reads 12 % faster than turn 1, side by side it is slower.
  CHECK(Leader({Turn(1, 2.82), Turn(2, 3.16, 1, 0.97)}) == 1);
  CHECK(Leader({Turn(1, 2.82), Turn(2, 2.5, 1, 1.05)}) == 2);
  // Not distinguishable: the earlier one stays.
  CHECK(Leader({Turn(1, 2), Turn(2, 2.2, 1, 1.005)}) == 1);
  // Small steps add up: turn 4 is compared with turn 1 until it is clearly faster.
  CHECK(Leader({Turn(1, 2), Turn(2, 2, 1, 1.008), Turn(3, 2, 1, 1.009), Turn(4, 2, 1, 1.02)}) == 4);
}

TEST_CASE("turns are compared through the turns between them") {
  std::vector<TurnRecord> turns = {Turn(1, 2), Turn(2, 2, 1, 1.1), Turn(3, 2, 2, 1.2), Turn(4, 2, 1, 1.5)};
  CHECK(CompareTurns(turns, 3, 1)->value == Approx(1.1 * 1.2));
  CHECK(CompareTurns(turns, 1, 3)->value == Approx(1 / (1.1 * 1.2)));
  CHECK(CompareTurns(turns, 3, 4)->value == Approx(1.1 * 1.2 / 1.5));
  CHECK(CompareTurns(turns, 3, 3)->value == 1);
  // A single comparison keeps its own interval.
  CHECK(CompareTurns(turns, 3, 2)->low == turns[2].evaluation.against_best->low);
  turns[3].evaluation.against_best.reset();
  CHECK_FALSE(CompareTurns(turns, 4, 1));
}

TEST_CASE("a leader that turns out incorrect leaves the chain whole") {
  std::vector<TurnRecord> turns = {Turn(1, 2), Turn(2, 3, 1, 1.5), Turn(3, 2.6, 2, 0.9)};
  CHECK(Leader(turns) == 2);
  turns[1].evaluation.correct = false;
  turns[1].evaluation.speedup.reset();
  CHECK(Leader(turns) == 3);  // 1.5 * 0.9 times as fast as turn 1
  turns[2].evaluation.against_best = Around(0.66);
  CHECK(Leader(turns) == 1);
}

TEST_CASE("without comparisons the speed-ups over eager decide, and a stored verdict never takes the lead") {
  CHECK(Leader({Turn(1, 2), Turn(2, 2.02)}) == 1);
  CHECK(Leader({Turn(1, 2), Turn(2, 2.2)}) == 2);
  TurnRecord cached = Turn(2, 9);
  cached.evaluation.cached_from = "01J0";
  CHECK(Leader({Turn(1, 2), cached}) == 1);
  CHECK(Leader({cached, Turn(3, 2)}) == 2);  // but the first correct one leads
}

TEST_CASE("the ranking: the leader, then who may be faster, the most probable first") {
  std::vector<TurnRecord> turns = {Turn(1, 2),
                                   Turn(2, 2, 1, 1.006, 0.03),
                                   Turn(3, 2, 1, 1.008, 0.03),
                                   Turn(4, 2, 1, 0.999, 0.03),
                                   Turn(5, 2, 1, 0.9, 0.03),
                                   Turn(6, 2, 1, 1.007, 0.03),
                                   Turn(7, 2, 1, 1.007)};  // the same, within 2 %
  turns[5].evaluation.candidate_hash = "3";                // the same text as turn 3
  CHECK(RankingOf(turns) == std::vector<int>{1, 3, 2});
  CHECK(RankingOf({}).empty());
}

TEST_CASE("a record that refers to itself or to later turns ends the chain") {
  std::vector<TurnRecord> turns = {Turn(1, 2, 1, 1.5), Turn(2, 2, 3, 1.5), Turn(3, 2, 2, 1.5)};
  CHECK(Leader(turns) >= 1);
  CHECK_FALSE(CompareTurns(turns, 2, 1));
}

}  // namespace kevin
