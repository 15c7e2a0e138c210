#pragma once
// START HERE for reports: episodes in, metrics with intervals out. side.h reduces the episodes of each side
// to numbers; MakeReport computes everything below; tools/report/ shows it as text, JSON or a page. Pure
// arithmetic; any thread.
//
// The number of a problem is the mean (avg) or the largest value (best) over its episodes. A metric is the
// mean of that over problems, with equal weight. The value of an episode is defined in side.h.
//
//   compiled, correct   shares of turns
//   solved              share of episodes (avg) or problems (best) with a correct kernel
//   fast_p              share with a confirmed speed-up above p (KernelBench, arXiv 2502.10517)
//   mean                arithmetic mean, failures 0 (Kevin, arXiv 2507.11948, table 1)
//   mean_correct        the same over correct ones only
//   geomean             geometric mean, failures 1x: without a kernel of its own a user keeps eager
//   geomean_correct     over correct ones only
//   best@k, pass@k      order-statistic and unbiased estimators over episodes (estimators.h); unknown unless every
//                       problem has k episodes, so that all k are about the same problems
//   ..._per_solved      wall seconds, seconds of a held GPU, tokens, US dollars: everything spent, over the
//                       number of solved problems
//
// Intervals are percentiles of a nested bootstrap: problems are drawn with replacement, then episodes within
// each drawn problem, then each value is moved by its own measurement error, exp(log_se z). The draws are
// shifted so that their mean is the metric itself.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "agent/report/side.h"

namespace kevin {

// --- Metrics ---

enum class MetricUnit { kShare, kRatio, kSeconds, kCount, kDollars };

struct MetricSpec {
  std::string name;   // "fast_1.2_avg", as in JSON
  std::string label;  // "fast_1.2, of episodes"
  MetricUnit unit = MetricUnit::kShare;
  bool higher_is_better = true;
  bool is_tested = false;  // one of the few on which comparisons of sides are decided
};

// k = 1, 2, 4, ... up to the largest number of episodes of a problem of any side.
std::vector<int> KValues(std::span<const Side> sides);

// The list is the same for every side; values are NaN where a side lacks the data.
std::vector<MetricSpec> MetricList(const std::vector<int>& k_values);

// `problems`: indices into side.problems; an index may occur more than once.
std::vector<double> Metrics(const Side& side, std::span<const size_t> problems,
                            const std::vector<int>& k_values);

// --- Intervals and comparisons ---

struct Interval {
  double value = 0, low = 0, high = 0;
};

struct BootstrapOptions {
  int replicates = 1000;
  double confidence = 0.95;
  uint64_t seed = 1;
};

// One Interval per metric of the list.
std::vector<Interval> MetricIntervals(const Side& side, std::span<const size_t> problems,
                                      const std::vector<int>& k_values, const BootstrapOptions& options);

// `other` against `base` on their common problems, which are drawn together.
struct Difference {
  Interval difference;    // other minus base
  double p_value = 1;     // two-sided, from the bootstrap; no smaller than 2 / (replicates + 1)
  double p_adjusted = 1;  // Holm's correction over the tested metrics; 1 for the others
};
struct SideComparison {
  std::vector<std::string> problems;    // in common
  std::vector<double> base, other;      // on these problems
  std::vector<Difference> differences;  // one per metric; NaN where it cannot be compared
};
SideComparison Compare(const Side& base, const Side& other, const std::vector<int>& k_values,
                       const BootstrapOptions& options);

// Serial against parallel at equal budgets: the best of e episodes of t turns each, e x t kernels, from the
// turns' own measurements, since only an episode's winner is confirmed. The mean over the problems with e
// episodes of t turns.
struct BudgetCell {
  int turns = 1, episodes = 1;
  double best = 0, solved = 0;  // failures count 0
  Interval best_interval;       // from problems drawn again
  int64_t problems = 0;
};
std::vector<BudgetCell> BudgetTable(const Side& side, const BootstrapOptions& options);

// --- Reports ---

// The metrics of some of a side's problems.
struct ReportGroup {
  std::string kind, name;  // "all" and "", "level" and "level1", "family" and "softmax"
  std::vector<size_t> problems;
  std::vector<Interval> metrics;  // in the order of Report::specs
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
  BootstrapOptions options;  // with the replicates used
  std::vector<int> k_values;
  std::vector<MetricSpec> specs;
  std::vector<SideReport> sides;
  std::vector<SideComparison> comparisons;  // sides 1, 2, ... against side 0

  size_t MetricIndex(const std::string& name) const;                   // of a metric of the list
  const Interval& Metric(size_t side, const std::string& name) const;  // over all its problems
};

// `options.replicates` is lowered, to no fewer than 100, where the number of episodes would make it take many
// seconds. Sides without problems are kept, with unknown metrics.
Report MakeReport(std::vector<Side> sides, BootstrapOptions options);

}  // namespace kevin
