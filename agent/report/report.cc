#include "agent/report/report.h"

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
