#pragma once
// START HERE for reports: sides of episodes in, all metrics with their intervals out; tools/report/report_text.h
// and tools/report/page.h show them. Pure arithmetic; any thread.

#include <string>
#include <vector>

#include "agent/report/metrics.h"

namespace kevin {

// The metrics of some of a side's problems.
struct ReportGroup {
  std::string kind, name;  // "all" and "", "level" and "level1", "family" and "softmax"
  std::vector<size_t> problems;
  std::vector<Interval> metrics;  // by Report::specs
};

struct FastPoint {
  double p = 0, avg = 0, best = 0;  // share of episodes, of problems
};

struct SideReport {
  Side side;
  std::vector<ReportGroup> groups;  // all, then levels, then families
  std::vector<FastPoint> fast_curve;
  std::vector<BudgetCell> budgets;
};

struct Report {
  BootstrapOptions options;  // replicates: as they were done
  std::vector<int> k_values;
  std::vector<MetricSpec> specs;
  std::vector<SideReport> sides;
  std::vector<SideComparison> comparisons;  // sides 1, 2, ... against side 0

  size_t MetricIndex(const std::string& name) const;                   // must be one of the list
  const Interval& Metric(size_t side, const std::string& name) const;  // of all its problems
};

// `options.replicates` is lowered, to no fewer than 100, where there are so many episodes that it would take
// many seconds. Sides without problems are kept, with unknown metrics.
Report MakeReport(std::vector<Side> sides, BootstrapOptions options);

}  // namespace kevin
