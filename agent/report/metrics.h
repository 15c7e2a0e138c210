#pragma once
// The metrics of a side and their intervals.
//
// A problem's number is the mean (avg) or the largest (best) over its episodes; a metric is the mean of that
// over problems, each problem once. The best of an episode is what side.h says.
//
//   compiled, correct     shares of turns
//   solved                share of episodes (avg) or problems (best) with a right kernel
//   fast_p                share with a confirmed speed-up above p (KernelBench, arXiv 2502.10517)
//   mean                  arithmetic mean, failures 0 (Kevin, arXiv 2507.11948, table 1)
//   mean_correct          the same over the right ones alone
//   geomean               geometric mean with failures as 1x: whoever has no kernel keeps eager
//   geomean_correct       over the right ones alone
//   best@k, pass@k        order-statistic and unbiased estimators over episodes (estimators.h); unknown
//                         unless every problem has k episodes, so that all k are about the same problems
//   ..._per_solved        seconds of wall time, seconds of a held GPU, tokens, US dollars: all that was spent
//                         over the number of solved problems
//
// Intervals are percentiles of a nested bootstrap: problems are drawn with replacement, then episodes within
// each drawn problem, then each value is moved by its own measurement error, exp(log_se z). The draws are
// moved so that their mean is the metric itself.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "agent/report/side.h"

namespace kevin {

enum class MetricUnit { kShare, kRatio, kSeconds, kCount, kDollars };

struct MetricSpec {
  std::string name;   // "fast_1.2_avg", as in JSON
  std::string label;  // "fast_1.2, an episode"
  MetricUnit unit = MetricUnit::kShare;
  bool higher_is_better = true;
  bool is_tested = false;  // one of the few that comparisons of sides are decided on
};

// k = 1, 2, 4, ... up to the largest number of episodes that some problem of some side has.
std::vector<int> KValues(std::span<const Side> sides);

// The list is the same for every side; values are NaN where a side has nothing to say.
std::vector<MetricSpec> MetricList(const std::vector<int>& k_values);

// `problems`: indices into side.problems; each may come more than once.
std::vector<double> Metrics(const Side& side, std::span<const size_t> problems,
                            const std::vector<int>& k_values);

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

// How `other` differs from `base` on the problems that both have, which are drawn together.
struct Difference {
  Interval difference;    // other minus base
  double p_value = 1;     // two-sided, from the bootstrap; no smaller than 2 / (replicates + 1)
  double p_adjusted = 1;  // Holm's, over the metrics that are tested; 1 for the others
};
struct SideComparison {
  std::vector<std::string> problems;    // in common
  std::vector<double> base, other;      // on these problems
  std::vector<Difference> differences;  // one per metric; NaN where it cannot be compared
};
SideComparison Compare(const Side& base, const Side& other, const std::vector<int>& k_values,
                       const BootstrapOptions& options);

// Serial against parallel at equal budgets: the best of e episodes of t turns each, e x t kernels. Turns' own
// measurements, since only an episode's winner is confirmed. Averaged over the problems that have e episodes
// of t turns; their number is beside it.
struct BudgetCell {
  int turns = 1, episodes = 1;
  double best = 0, solved = 0;  // failures count 0
  Interval best_interval;       // problems drawn again
  int64_t problems = 0;
};
std::vector<BudgetCell> BudgetTable(const Side& side, const BootstrapOptions& options);

}  // namespace kevin
