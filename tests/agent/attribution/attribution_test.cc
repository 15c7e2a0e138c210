// Scores, returns and advantages against numbers worked out by hand.

#include "agent/attribution/attribution.h"

#include <cmath>
#include <random>

#include "tests/catch.h"

namespace kevin {
namespace {

TurnFacts Right(double speedup, double log_se = 0) { return {true, true, true, speedup, log_se}; }
TurnFacts Wrong() { return {true, true, false, 0, 0}; }
TurnFacts NotCompiled() { return {true, false, false, 0, 0}; }
TurnFacts NoSource() { return {}; }

ScoreRule Rule(const std::string& name) {
  ScoreRule rule;
  REQUIRE(FindScoreRule(name, &rule));
  return rule;
}

std::vector<Scored> Plain(const std::vector<double>& values) {
  std::vector<Scored> scored;
  for (const double v : values) scored.push_back({v, 0});
  return scored;
}

void CheckReturns(ReturnRule rule, const std::vector<double>& scores, const std::vector<double>& expected) {
  const auto returns = Returns(rule, Plain(scores));
  REQUIRE(returns.size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) CHECK(returns[i].score == Approx(expected[i]));
}

TEST_CASE("scores: each named rule on each kind of turn") {
  CHECK(ScoreOf(Rule("kevin"), Right(1.5)).score == Approx(1.8));
  CHECK(ScoreOf(Rule("kevin"), Right(40)).score == Approx(40.3));  // no cap
  CHECK(ScoreOf(Rule("kevin"), Wrong()).score == 0);
  CHECK(ScoreOf(Rule("dr-kernel"), Right(2)).score == Approx(3));
  CHECK(ScoreOf(Rule("dr-kernel"), Right(40)).score == Approx(4));  // 1 + min(40, 3)
  CHECK(ScoreOf(Rule("shaped"), NoSource()).score == 0);
  CHECK(ScoreOf(Rule("shaped"), NotCompiled()).score == Approx(0.1));
  CHECK(ScoreOf(Rule("shaped"), Wrong()).score == Approx(0.2));
  CHECK(ScoreOf(Rule("shaped"), Right(1.5)).score == Approx(2.0));
  CHECK(ScoreOf(Rule("correct"), Right(7)).score == 1);
  ScoreRule unchanged;
  unchanged.correct = 9;
  CHECK_FALSE(FindScoreRule("none", &unchanged));
  CHECK(unchanged.correct == 9);
}

TEST_CASE("scores: milestones step at five per cent over eager") {
  const ScoreRule rule = Rule("milestones");
  CHECK(ScoreOf(rule, Wrong()).score == -1);
  CHECK(ScoreOf(rule, NoSource()).score == -1);
  CHECK(ScoreOf(rule, Right(1.05)).score == 1);
  CHECK(ScoreOf(rule, Right(1.06)).score == 2);
  CHECK(ScoreOf(rule, Right(9)).score == 2);
}

TEST_CASE("scores: weights of one's own, and errors that a cap takes away") {
  ScoreRule rule = Rule("kevin");
  rule.log2_speedup = 0.5, rule.faster = 0.25, rule.wrong = -0.1, rule.cap = 4;
  // 0.3 + 2 + 0.5 * log2(2) + 0.25
  CHECK(ScoreOf(rule, Right(2)).score == Approx(3.05));
  CHECK(ScoreOf(rule, Wrong()).score == Approx(-0.1));
  // dS/dlog s = s + 0.5 / ln 2 = 2.7213475
  CHECK(ScoreOf(rule, Right(2, 0.01)).se == Approx(0.027213475));
  CHECK(ScoreOf(rule, Right(5, 0.01)).se == 0);
  CHECK(ScoreOf(rule, Right(2, std::nan(""))).se == 0);
  CHECK(ScoreOf(Rule("kevin"), Right(2, 0.01)).se == Approx(0.02));
}

TEST_CASE("returns of {0, 1, 2}, worked out by hand") {
  using Kind = ReturnRule::Kind;
  CheckReturns({Kind::kSum, 0.4}, {0, 1, 2}, {0.72, 1.8, 2.0});
  CheckReturns({Kind::kSum, 1.0}, {0, 1, 2}, {3, 3, 2});
  CheckReturns({Kind::kMax, 0.8}, {0, 1, 2}, {1.28, 1.6, 2.0});
  CheckReturns({Kind::kMax, 0.4}, {0, 1, 2}, {0.4, 1.0, 2.0});
  CheckReturns({Kind::kOutcome, 0.4}, {0, 3, 2}, {3, 3, 3});
  CheckReturns({Kind::kOwn, 0.4}, {0, 1, 2}, {0, 1, 2});
  CheckReturns({Kind::kSum, 0.4}, {}, {});
  CheckReturns({Kind::kMax, 0.8}, {-1}, {-1});
}

TEST_CASE("a discount of 0 leaves every turn its own score") {
  CheckReturns({ReturnRule::Kind::kSum, 0}, {3, 1, 2}, {3, 1, 2});
  CheckReturns({ReturnRule::Kind::kMax, 0}, {3, 1, 2}, {3, 1, 2});
}

TEST_CASE("errors of returns: squares add up in a sum, a maximum has its source's") {
  const std::vector<Scored> turns = {{1, 0.3}, {2, 0.4}};
  CHECK(Returns({ReturnRule::Kind::kSum, 0.5}, turns)[0].se == Approx(std::hypot(0.3, 0.2)));
  CHECK(Returns({ReturnRule::Kind::kMax, 1.0}, turns)[0].se == Approx(0.4));
  CHECK(Returns({ReturnRule::Kind::kMax, 0.1}, turns)[0].se == Approx(0.3));
  CHECK(Returns({ReturnRule::Kind::kOutcome, 1.0}, turns)[0].se == Approx(0.4));
}

TEST_CASE("advantages of {1, 2, 6}: mean 3, deviation sqrt(14/3)") {
  using Kind = AdvantageRule::Kind;
  const auto returns = Plain({1, 2, 6});
  const double s = std::sqrt(14.0 / 3);
  const auto check = [&](Kind kind, std::vector<double> expected) {
    const GroupResult result = Advantages({kind, 2}, returns);
    CHECK_FALSE(result.flat);
    for (size_t i = 0; i < 3; ++i) CHECK(result.advantages[i] == Approx(expected[i]));
  };
  check(Kind::kGroup, {-2 / s, -1 / s, 3 / s});
  check(Kind::kTurn, {-2 / s, -1 / s, 3 / s});
  check(Kind::kTurnLeaveOneOut, {1 - 4.0, 2 - 3.5, 6 - 1.5});  // against the mean of the other two
  check(Kind::kGroupLeaveOneOut, {1 - 4.0, 2 - 3.5, 6 - 1.5});
  check(Kind::kGroupMean, {-2, -1, 3});
  check(Kind::kTurnMean, {-2, -1, 3});
}

TEST_CASE("a group within twice the measurement error counts as no difference") {
  using Kind = AdvantageRule::Kind;
  // Deviation of {1, 1.2} is 0.1.
  const std::vector<Scored> noisy = {{1, 0.05}, {1.2, 0.051}};  // error 0.0505: twice it is 0.101
  const std::vector<Scored> sharp = {{1, 0.05}, {1.2, 0.049}};  // error 0.0495: twice it is 0.099
  for (const Kind kind : {Kind::kGroup, Kind::kTurnLeaveOneOut, Kind::kGroupMean}) {
    CHECK(Advantages({kind, 2}, noisy).flat);
    CHECK(Advantages({kind, 2}, noisy).advantages == std::vector<double>{0, 0});
    CHECK_FALSE(Advantages({kind, 2}, sharp).flat);
    CHECK(Advantages({kind, 2}, sharp).advantages[1] > 0.09);
    CHECK_FALSE(Advantages({kind, 0}, noisy).flat);
  }
  CHECK(Advantages({Kind::kGroup, 0}, Plain({1.3, 1.3, 1.3})).flat);
  CHECK(Advantages({Kind::kTurnLeaveOneOut, 0}, Plain({1.3})).advantages == std::vector<double>{0});
}

TEST_CASE("pure noise teaches nothing: equal kernels at 2 % noise") {
  std::mt19937_64 random(7);
  std::normal_distribution<double> noise(0, 0.02);
  int flat = 0;
  for (int group = 0; group < 200; ++group) {
    std::vector<Scored> returns;
    for (int i = 0; i < 16; ++i) {
      const double s = 1.2 * std::exp(noise(random));
      returns.push_back({0.3 + s, s * 0.02});
    }
    flat += Advantages({AdvantageRule::Kind::kGroup, 2}, returns).flat;
  }
  CHECK(flat == 200);
}

AttributedEpisode Episode(int task, const std::vector<double>& speedups) {
  AttributedEpisode episode;
  episode.task = task;
  for (const double s : speedups) episode.turns.push_back(s > 0 ? Right(s) : Wrong());
  return episode;
}

TEST_CASE("a whole attribution: groups by task, or by task and turn") {
  const std::vector<AttributedEpisode> episodes = {Episode(1, {0, 1.7}), Episode(1, {0.7, 0}),
                                                   Episode(2, {1, 1})};
  Scheme scheme = *FindScheme("kevin");
  const Attribution kevin = Attribute(scheme, episodes);
  REQUIRE(kevin.turns.size() == 6);
  CHECK((kevin.groups == 2 && kevin.flat_groups == 0));
  // Task 1: returns 0.8, 2; 1, 0. Mean 0.95.
  CHECK(kevin.turns[0].value == Approx(0.8));
  CHECK(kevin.turns[1].value == Approx(2.0));
  CHECK(kevin.turns[2].value == Approx(1.0));
  const double s = std::sqrt((0.15 * 0.15 + 1.05 * 1.05 + 0.05 * 0.05 + 0.95 * 0.95) / 4);
  CHECK(kevin.turns[1].advantage == Approx(1.05 / s));
  CHECK(kevin.turns[2].advantage == Approx(0.05 / s));
  // Task 2: returns 1.82 and 1.3.
  CHECK(kevin.turns[4].advantage == Approx(1));
  CHECK(kevin.turns[5].advantage == Approx(-1));

  scheme.advantage.kind = AdvantageRule::Kind::kTurnLeaveOneOut;
  const Attribution per_turn = Attribute(scheme, episodes);
  CHECK((per_turn.groups == 4 && per_turn.flat_groups == 2));  // task 2 has one episode
  CHECK(per_turn.turns[0].advantage == Approx(-0.2));
  CHECK(per_turn.turns[2].advantage == Approx(0.2));
  CHECK(per_turn.turns[1].advantage == Approx(2.0));
  CHECK(per_turn.turns[4].advantage == 0);
}

TEST_CASE("dapo: the penalty of overlong replies counts in a task that differs, and makes none differ") {
  const auto single = [](int task, TurnFacts turn, double overlong) {
    turn.overlong = overlong;
    return AttributedEpisode{task, {turn}};
  };
  const std::vector<AttributedEpisode> episodes = {
      single(1, Wrong(), 0),  single(1, Right(1.7), -0.5), single(1, Right(0.7), -1),
      single(2, Right(1), 0), single(2, Right(1), -1),  // equally correct, as fast: nothing but the length
      single(3, Wrong(), 0),  single(3, Wrong(), -1)};
  const Attribution dapo = Attribute(*FindScheme("dapo"), episodes);
  REQUIRE(dapo.turns.size() == 7);
  CHECK((dapo.groups == 3 && dapo.flat_groups == 2));
  // Task 1: returns 0, 2 - 0.5, 1 - 1; mean 0.5, variance (0.25 + 1 + 0.25) / 3.
  CHECK(dapo.turns[1].value == Approx(1.5));
  CHECK(dapo.turns[0].advantage == Approx(-0.5 / std::sqrt(0.5)));
  CHECK(dapo.turns[1].advantage == Approx(1 / std::sqrt(0.5)));
  CHECK(dapo.turns[2].advantage == Approx(-0.5 / std::sqrt(0.5)));
  for (size_t i = 3; i < 7; ++i) CHECK(dapo.turns[i].advantage == 0);
}

TEST_CASE("a leave-one-out advantage does not depend on the turn's own return") {
  // N/(N-1) (G - mean) is G minus the mean of the others: raising one return by d raises its own advantage by
  // exactly d, where the group's mean would swallow d/N of it.
  const auto at = [](double first, AdvantageRule::Kind kind) {
    return Advantages({kind, 2}, Plain({first, 2, 3, 4})).advantages[0];
  };
  using Kind = AdvantageRule::Kind;
  CHECK(at(8, Kind::kTurnLeaveOneOut) - at(7, Kind::kTurnLeaveOneOut) == Approx(1));
  CHECK(at(8, Kind::kTurnMean) - at(7, Kind::kTurnMean) == Approx(0.75));
}

TEST_CASE("names of schemes and kinds go there and back") {
  for (const Scheme& scheme : KnownSchemes()) {
    REQUIRE(FindScheme(scheme.name));
    ReturnRule::Kind returns{};
    AdvantageRule::Kind advantage{};
    CHECK((FindReturnKind(ReturnKindName(scheme.returns.kind), &returns) && returns == scheme.returns.kind));
    CHECK((FindAdvantageKind(AdvantageKindName(scheme.advantage.kind), &advantage) &&
           advantage == scheme.advantage.kind));
  }
  CHECK_FALSE(FindScheme("none"));
}

}  // namespace
}  // namespace kevin
