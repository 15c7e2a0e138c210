// Estimators against closed forms, metrics against numbers worked out by hand, intervals and comparisons
// against data whose truth is known.

#include "agent/report/report.h"

#include <cmath>
#include <random>

#include "agent/report/estimators.h"
#include "tests/catch.h"

namespace kevin {
namespace {

TEST_CASE("fast_p counts what is strictly above p; failures are 0") {
  const std::vector<double> s = {0, 0.9, 1, 1.2, 3};
  CHECK(FastP(s, 0) == Approx(0.8));
  CHECK(FastP(s, 1) == Approx(0.4));
  CHECK(FastP(s, 1.2) == Approx(0.2));
  CHECK(std::isnan(FastP({}, 1)));
}

TEST_CASE("pass@k is 1 - C(n-c, k) / C(n, k)") {
  CHECK(PassAtK(4, 1, 1) == Approx(0.25));
  CHECK(PassAtK(4, 1, 2) == Approx(0.5));  // 1 - 3/6
  CHECK(PassAtK(5, 2, 3) == Approx(0.9));  // 1 - 1/10
  CHECK(PassAtK(5, 0, 3) == 0);
  CHECK(PassAtK(5, 3, 3) == Approx(1));
  CHECK(PassAtK(5, 5, 5) == 1);
  CHECK(std::isnan(PassAtK(3, 1, 4)));
}

TEST_CASE("best@k is the mean of the largest over all draws of k") {
  const std::vector<double> x = {1, 2, 4, 8};
  CHECK(BestAtK(x, 1) == Approx(15.0 / 4));
  CHECK(BestAtK(x, 2) == Approx((2 + 4 + 8 + 4 + 8 + 8) / 6.0));
  CHECK(BestAtK(x, 3) == Approx((4 + 8 + 8 + 8) / 4.0));
  CHECK(BestAtK(x, 4) == Approx(8));
  CHECK(std::isnan(BestAtK(x, 5)));
  double sum = 0;
  for (const double w : BestAtKWeights(7, 3)) sum += w;
  CHECK(sum == Approx(1));
  CHECK(BestAtKWeights(4, 2) == std::vector<double>{0, 1.0 / 6, 2.0 / 6, 3.0 / 6});
}

TEST_CASE("Holm's method steps down and never falls") {
  const std::vector<double> p = {0.01, 0.04, 0.03, 0.005};
  const auto adjusted = HolmAdjusted(p);
  CHECK(adjusted[3] == Approx(0.02));
  CHECK(adjusted[0] == Approx(0.03));
  CHECK(adjusted[2] == Approx(0.06));
  CHECK(adjusted[1] == Approx(0.06));  // 0.04 alone would be less than what came before
  CHECK(QuantileOfSorted(std::vector<double>{1, 2, 3}, 0.25) == Approx(1.5));
}

// Episodes of the given speed-ups (0: none right), each one turn, confirmed.
Figures MakeFigures(const std::vector<std::vector<double>>& speedups_by_problem, double log_se = 0) {
  Figures figures;
  figures.models = {"m"};
  for (size_t p = 0; p < speedups_by_problem.size(); ++p) {
    figures.problems.push_back(
        {"hash", "level1/" + std::to_string(p + 1), "P", {p % 2 ? "norm" : "matmul"}, {}});
    for (const double s : speedups_by_problem[p]) {
      EpisodeFigures e;
      e.id = std::to_string(figures.episodes.size()), e.problem = static_cast<int>(p), e.state = "done";
      e.turns_asked = 1, e.first_turn = figures.turns.size(), e.turn_count = 1, e.seconds = 10;
      if (s > 0) e.best_turn = 1, e.best_speedup = s, e.best_log_se = log_se;
      TurnFigures t;
      t.turn = 1, t.outcome = s > 0 ? OutcomeKind::kMeasured : OutcomeKind::kWrong;
      t.compiled = true, t.correct = s > 0, t.seconds = 10, t.generate_s = 6, t.measure_s = 4;
      t.prompt_tokens = 100, t.completion_tokens = 50;
      if (s > 0) t.speedup = s * 1.1, t.log_se = log_se;
      figures.episodes.push_back(e), figures.turns.push_back(t);
    }
  }
  return figures;
}

Side MakeTestSide(const Figures& figures, const std::string& name = "side") {
  std::vector<size_t> all;
  for (size_t i = 0; i < figures.episodes.size(); ++i) all.push_back(i);
  return MakeSide(name, figures, all);
}

TEST_CASE("metrics by hand: two problems, two episodes each") {
  const Report report = MakeReport({MakeTestSide(MakeFigures({{2, 0}, {0.5, 4}}))}, {});
  const auto value = [&](const char* name) { return report.Metric(0, name).value; };
  CHECK(value("compiled") == 1);
  CHECK(value("correct") == Approx(0.75));
  CHECK(value("solved_avg") == Approx(0.75));
  CHECK(value("solved_best") == 1);
  CHECK(value("fast_1_avg") == Approx(0.5));
  CHECK(value("fast_2_avg") == Approx(0.25));  // 2 is not above 2
  CHECK(value("fast_2_best") == Approx(0.5));
  CHECK(value("mean_avg") == Approx((1 + 2.25) / 2));
  CHECK(value("mean_correct") == Approx((2 + 2.25) / 2));
  CHECK(value("geomean_avg") == Approx(std::exp((std::log(2) / 2 + std::log(0.5 * 4) / 2) / 2)));
  CHECK(value("geomean_correct") == Approx(std::exp((std::log(2) + std::log(2) / 2) / 2)));
  CHECK(value("mean_best") == Approx(3));
  CHECK(value("geomean_best") == Approx(std::sqrt(8)));
  CHECK(value("best@1") == Approx(value("mean_avg")));
  CHECK(value("best@2") == Approx(3));
  CHECK(value("pass@1") == Approx(0.75));
  CHECK(value("pass@2") == 1);
  CHECK(value("seconds_per_solved") == Approx(20));
  CHECK(value("completion_tokens_per_solved") == Approx(100));
  CHECK(std::isnan(value("device_s_per_solved")));
  const Side& side = report.sides[0].side;
  CHECK((side.time.generate_s == 24 && side.time.measure_s == 16 && side.turns == 4));
  CHECK(side.outcomes[static_cast<size_t>(OutcomeKind::kWrong)] == 1);
  REQUIRE(report.sides[0].groups.size() == 4);  // all, level1, matmul, norm
  CHECK(report.sides[0].groups[2].name == "matmul");
  CHECK(report.sides[0].groups[2].metrics[report.MetricIndex("mean_avg")].value == Approx(1));
}

TEST_CASE("best@k and pass@k are known only where every problem has k episodes") {
  const Report report = MakeReport({MakeTestSide(MakeFigures({{4, 4}, {1}}))}, {});
  CHECK(report.Metric(0, "best@1").value == Approx(2.5));
  CHECK(std::isnan(report.Metric(0, "best@2").value));
  CHECK(std::isnan(report.Metric(0, "pass@2").value));
  CHECK(std::isnan(report.Metric(0, "best@2").low));
}

TEST_CASE("cumulative curves keep the last value of episodes that have ended") {
  Figures figures = MakeFigures({{3}, {1}});
  TurnFigures second = figures.turns[1];  // the second problem's episode goes on without success
  second.turn = 2, second.correct = false, second.speedup = kNotKnown;
  figures.turns.push_back(second);
  figures.episodes[1].turn_count = 2;
  const auto curve = MakeTestSide(figures).by_turn;
  REQUIRE(curve.size() == 2);
  CHECK((curve[0].episodes == 2 && curve[1].episodes == 1));
  CHECK(curve[0].best_so_far == Approx((3.3 + 1.1) / 2));
  CHECK(curve[1].best_so_far == Approx(curve[0].best_so_far));
  CHECK(curve[1].solved_so_far == 1);
  CHECK(curve[1].correct == 0);  // of the turn itself
}

TEST_CASE(
    "an episode counts with its confirmed speed-up, and without one with its best turn, which is said") {
  Figures figures = MakeFigures({{2}});
  CHECK(MakeTestSide(figures).problems[0].episodes[0].value == 2);
  figures.episodes[0].best_turn = -1, figures.episodes[0].best_speedup = kNotKnown;
  const Side side = MakeTestSide(figures);
  CHECK(side.problems[0].episodes[0].value == Approx(2.2));
  CHECK(side.unconfirmed == 1);
  CHECK(ProblemIdLess("level1/19", "level1/100"));
  CHECK_FALSE(ProblemIdLess("level2/1", "level1/100"));
}

TEST_CASE("curves by turn and equal budgets") {
  Figures figures = MakeFigures({{1, 1}});
  figures.turns.clear();
  const double speeds[2][2] = {{0, 3}, {1, 2}};  // two episodes of two turns
  for (size_t e = 0; e < 2; ++e) {
    figures.episodes[e].first_turn = figures.turns.size(), figures.episodes[e].turn_count = 2;
    figures.episodes[e].turns_asked = 2;
    for (int t = 0; t < 2; ++t) {
      TurnFigures turn;
      turn.turn = t + 1, turn.compiled = true, turn.correct = speeds[e][t] > 0;
      if (turn.correct) turn.speedup = speeds[e][t];
      figures.turns.push_back(turn);
    }
  }
  const Report report = MakeReport({MakeTestSide(figures)}, {});
  const auto& curve = report.sides[0].side.by_turn;
  REQUIRE(curve.size() == 2);
  CHECK((curve[0].correct == 0.5 && curve[0].best_so_far == 0.5 && curve[0].solved_so_far == 0.5));
  CHECK((curve[1].correct == 1 && curve[1].best_so_far == 2.5 && curve[1].fast1 == 1));
  const auto cell = [&](int turns, int episodes) {
    for (const BudgetCell& c : report.sides[0].budgets) {
      if (c.turns == turns && c.episodes == episodes) return c;
    }
    return BudgetCell{};
  };
  CHECK(report.sides[0].budgets.size() == 4);
  CHECK(cell(1, 1).best == Approx(0.5));
  CHECK(cell(1, 2).best == Approx(1));    // two kernels, in parallel
  CHECK(cell(2, 1).best == Approx(2.5));  // two kernels, one after the other
  CHECK(cell(2, 2).best == Approx(3));
  CHECK(cell(1, 1).solved == Approx(0.5));
}

std::vector<std::vector<double>> DrawnSpeedups(uint64_t seed, double shift, int problems, int episodes) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> between(0, 0.3), within(0, 0.1);
  std::vector<std::vector<double>> all;
  for (int p = 0; p < problems; ++p) {
    const double base = 0.2 + shift + between(random);
    all.emplace_back();
    for (int e = 0; e < episodes; ++e) all.back().push_back(std::exp(base + within(random)));
  }
  return all;
}

TEST_CASE("intervals hold the truth about as often as they say") {
  // The truth: the expected geometric mean is exp(0.2). 120 data sets of 40 problems with 4 episodes.
  int held = 0;
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    const Side side = MakeTestSide(MakeFigures(DrawnSpeedups(seed, 0, 40, 4), 0.01));
    const auto k = KValues(std::span(&side, 1));
    std::vector<size_t> all(side.problems.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = i;
    BootstrapOptions options;
    options.replicates = 300, options.seed = seed;
    const auto specs = MetricList(k);
    const auto intervals = MetricIntervals(side, all, k, options);
    for (size_t m = 0; m < specs.size(); ++m) {
      if (specs[m].name == "geomean_avg")
        held += intervals[m].low < std::exp(0.2) && std::exp(0.2) < intervals[m].high;
      if (!std::isnan(intervals[m].value))
        CHECK((intervals[m].low <= intervals[m].value + 1e-9 &&
               intervals[m].value <= intervals[m].high + 1e-9));
    }
  }
  CHECK(held >= 105);  // 0.95 * 120 = 114, four standard deviations (2.4 each) lower
  CHECK(held <= 120);
}

const Difference& DifferenceOf(const Report& report, const char* name) {
  return report.comparisons[0].differences[report.MetricIndex(name)];
}

TEST_CASE("equal sides do not differ, unequal ones do, and only shared problems count") {
  int false_alarms = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    // The same problems (same base by the same seed), other episodes.
    auto a = DrawnSpeedups(seed, 0, 25, 4), b = a;
    std::mt19937_64 random(seed + 1000);
    for (auto& problem : b) {
      const double mean = problem[0];
      for (double& s : problem) s = mean * std::exp(0.1 * std::normal_distribution<double>()(random));
    }
    for (auto& problem : a) {
      const double mean = problem[0];
      for (double& s : problem) s = mean * std::exp(0.1 * std::normal_distribution<double>()(random));
    }
    BootstrapOptions options;
    options.replicates = 200, options.seed = seed;
    const Report report = MakeReport({MakeTestSide(MakeFigures(a)), MakeTestSide(MakeFigures(b))}, options);
    for (const Difference& d : report.comparisons[0].differences) false_alarms += d.p_adjusted < 0.05;
  }
  CHECK(false_alarms <= 8);  // 40 families of tests at 5 %

  auto better = DrawnSpeedups(3, 0.15, 25, 4);
  better.push_back({100, 100});  // a problem that the other side lacks
  const Report report = MakeReport(
      {MakeTestSide(MakeFigures(DrawnSpeedups(3, 0, 25, 4)), "a"), MakeTestSide(MakeFigures(better), "b")},
      {});
  CHECK(report.comparisons[0].problems.size() == 25);
  const Difference& d = DifferenceOf(report, "geomean_avg");
  CHECK(d.difference.value > 0.1);
  CHECK(d.difference.value < 0.3);
  CHECK(d.p_adjusted < 0.05);
  CHECK(DifferenceOf(report, "fast_0_avg").p_adjusted == 1);  // not tested
}

TEST_CASE("the same seed gives the same report, and the measurement error widens it") {
  const Figures figures = MakeFigures(DrawnSpeedups(5, 0, 10, 3), 0.0);
  const Report a = MakeReport({MakeTestSide(figures)}, {}), b = MakeReport({MakeTestSide(figures)}, {});
  CHECK(a.Metric(0, "mean_avg").low == b.Metric(0, "mean_avg").low);
  const Figures one = MakeFigures({{1.5}}, 0.1);  // one problem, one episode: only the measurement is left
  const Interval interval = MakeReport({MakeTestSide(one)}, {}).Metric(0, "mean_avg");
  CHECK(interval.low == Approx(1.5 * std::exp(-0.196)).epsilon(0.03));
  CHECK(interval.high == Approx(1.5 * std::exp(0.196)).epsilon(0.03));
}

}  // namespace
}  // namespace kevin
