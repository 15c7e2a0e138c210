#include "agent/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "agent/report/estimators.h"

namespace kevin {
namespace {

constexpr int64_t kMostDraws = 25'000'000;  // episodes drawn for one side's metrics: some seconds

std::vector<ReportGroup> GroupsOf(const Side& side) {
  ReportGroup all{"all", "", std::vector<size_t>(side.problems.size()), {}};
  std::iota(all.problems.begin(), all.problems.end(), size_t{0});
  std::map<std::string, std::vector<size_t>> levels, families;
  for (size_t i = 0; i < side.problems.size(); ++i) {
    levels[side.problems[i].level].push_back(i);
    for (const std::string& family : side.problems[i].families) families[family].push_back(i);
  }
  std::vector<ReportGroup> groups = {std::move(all)};
  for (auto& [name, problems] : levels) groups.push_back({"level", name, std::move(problems), {}});
  for (auto& [name, problems] : families) groups.push_back({"family", name, std::move(problems), {}});
  return groups;
}

// Two groups of the same problems have the same metrics.
const ReportGroup* SameProblems(const std::vector<ReportGroup>& groups, size_t before) {
  for (size_t i = 0; i < before; ++i) {
    if (groups[i].problems == groups[before].problems) return &groups[i];
  }
  return nullptr;
}

std::vector<FastPoint> FastCurve(const Side& side) {
  constexpr int kPoints = 61;
  constexpr double kStep = 0.05;
  std::vector<FastPoint> curve(kPoints);
  for (int i = 0; i < kPoints; ++i) curve[static_cast<size_t>(i)].p = kStep * i;
  const auto problems = static_cast<double>(side.problems.size());
  std::vector<double> values;
  for (const SideProblem& problem : side.problems) {
    values.clear();
    for (const SideEpisode& e : problem.episodes) values.push_back(e.value);
    const double best = *std::max_element(values.begin(), values.end());
    for (FastPoint& point : curve) {
      point.avg += FastP(values, point.p) / problems;
      point.best += (best > point.p) / problems;
    }
  }
  return curve;
}

}  // namespace

std::vector<int> KValues(std::span<const Side> sides) {
  size_t most = 1;
  for (const Side& side : sides) {
    for (const SideProblem& problem : side.problems) most = std::max(most, problem.episodes.size());
  }
  std::vector<int> values;
  for (size_t k = 1; k <= most && k <= 4096; k *= 2) values.push_back(static_cast<int>(k));
  return values;
}

std::vector<MetricSpec> MetricList(const std::vector<int>& k_values) {
  using Unit = MetricUnit;
  std::vector<MetricSpec> list = {{"compiled", "turns that compile"},
                                  {"correct", "turns that are correct"},
                                  {"solved_avg", "episodes with a correct kernel"}};
  for (const double p : kFastThresholds)
    list.push_back({fmt::format("fast_{:g}_avg", p), fmt::format("fast_{:g}, of episodes", p)});
  list.push_back({"mean_avg", "mean speed-up, failures 0", Unit::kRatio});
  list.push_back({"mean_correct", "mean speed-up, correct ones", Unit::kRatio});
  list.push_back({"geomean_avg", "geometric mean, failures 1x", Unit::kRatio});
  list.push_back({"geomean_correct", "geometric mean, correct ones", Unit::kRatio});
  list.push_back({"solved_best", "problems solved"});
  for (const double p : kFastThresholds)
    list.push_back({fmt::format("fast_{:g}_best", p), fmt::format("fast_{:g}, of problems", p)});
  list.push_back({"mean_best", "best of each problem: mean, failures 0", Unit::kRatio});
  list.push_back({"geomean_best", "best of each problem: geometric mean, failures 1x", Unit::kRatio});
  list.push_back({"geomean_correct_best", "best of each problem: geometric mean, solved ones", Unit::kRatio});
  list.push_back({"seconds_per_solved", "wall seconds per solved problem", Unit::kSeconds, false});
  list.push_back({"device_s_per_solved", "GPU seconds per solved problem", Unit::kSeconds, false});
  list.push_back({"prompt_tokens_per_solved", "prompt tokens per solved problem", Unit::kCount, false});
  list.push_back(
      {"completion_tokens_per_solved", "completion tokens per solved problem", Unit::kCount, false});
  list.push_back({"usd_per_solved", "US dollars per solved problem", Unit::kDollars, false});
  for (const int k : k_values)
    list.push_back(
        {fmt::format("best@{}", k), fmt::format("best@{}: mean speed-up, failures 0", k), Unit::kRatio});
  for (const int k : k_values) list.push_back({fmt::format("pass@{}", k), fmt::format("pass@{}", k)});
  for (MetricSpec& spec : list) {
    for (const char* name :
         {"correct", "solved_avg", "fast_1_avg", "mean_avg", "geomean_avg", "geomean_best"})
      spec.is_tested |= spec.name == name;
  }
  return list;
}

std::vector<double> Metrics(const Side& side, std::span<const size_t> problems,
                            const std::vector<int>& k_values) {
  report::Accumulator accumulator(k_values);
  std::vector<const SideEpisode*> all;
  std::vector<double> values;
  for (const size_t index : problems) {
    all.clear(), values.clear();
    for (const SideEpisode& e : side.problems[index].episodes) all.push_back(&e), values.push_back(e.value);
    accumulator.Add(all, values);
  }
  return accumulator.Finish();
}

size_t Report::MetricIndex(const std::string& name) const {
  const auto found =
      std::find_if(specs.begin(), specs.end(), [&](const MetricSpec& spec) { return spec.name == name; });
  return static_cast<size_t>(found - specs.begin());
}

const Interval& Report::Metric(size_t side, const std::string& name) const {
  return sides[side].groups.front().metrics[MetricIndex(name)];
}

Report MakeReport(std::vector<Side> sides, BootstrapOptions options) {
  int64_t episodes = 1;
  for (const Side& side : sides) episodes += side.episodes;
  // Every episode is drawn for all problems, its level, its families and each comparison.
  options.replicates = static_cast<int>(std::clamp<int64_t>(
      kMostDraws / (4 * episodes), std::min(100, options.replicates), options.replicates));
  Report report;
  report.options = options;
  report.k_values = KValues(sides);
  report.specs = MetricList(report.k_values);
  for (Side& side : sides) {
    SideReport one;
    one.groups = GroupsOf(side);
    for (size_t i = 0; i < one.groups.size(); ++i) {
      const ReportGroup* same = SameProblems(one.groups, i);
      one.groups[i].metrics =
          same ? same->metrics : MetricIntervals(side, one.groups[i].problems, report.k_values, options);
    }
    one.fast_curve = FastCurve(side);
    one.budgets = BudgetTable(side, options);
    one.side = std::move(side);
    report.sides.push_back(std::move(one));
  }
  for (size_t i = 1; i < report.sides.size(); ++i)
    report.comparisons.push_back(
        Compare(report.sides[0].side, report.sides[i].side, report.k_values, options));
  return report;
}

}  // namespace kevin
