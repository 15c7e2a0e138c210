#pragma once
// The formulas behind reports, and the sums over problems from which all metrics follow. Pure; any thread.

#include <cstdint>
#include <span>
#include <vector>

#include "agent/report/side.h"

namespace kevin {

// fast_p, KernelBench (arXiv 2502.10517): the share of `speedups` above `p`. A failure is 0, so that fast_0
// is the share of correct ones.
double FastP(std::span<const double> speedups, double p);

// The probability that k of n samples, drawn without replacement, hold one of the c correct ones:
// 1 - C(n-c, k) / C(n, k); Chen and others, arXiv 2107.03374. NaN where k > n.
double PassAtK(int64_t n, int64_t c, int64_t k);

// The expected largest of k values drawn without replacement from those given: sum over ranks i of
// C(i-1, k-1) / C(n, k) x_(i), the order-statistic estimator, unbiased for the best of k fresh samples.
// `ascending` must be sorted. NaN where k > n.
double BestAtK(std::span<const double> ascending, int64_t k);
// The weights alone, by rank from the smallest.
std::vector<double> BestAtKWeights(int64_t n, int64_t k);

// Linear between neighbours; `share` from 0 to 1. NaN for no values.
double QuantileOfSorted(std::span<const double> ascending, double share);

// Holm's step-down correction; adjusted p-values in the order given.
std::vector<double> HolmAdjusted(std::span<const double> p_values);

namespace report {

inline constexpr size_t kFast = kFastThresholds.size();

// Positions in the list of metrics.
enum Slot : size_t {
  kCompiled,
  kCorrect,
  kSolvedAvg,
  kFastAvg,
  kMeanAvg = kFastAvg + kFast,
  kMeanCorrect,
  kGeomean,
  kGeomeanCorrect,
  kSolvedBest,
  kFastBest,
  kMeanBest = kFastBest + kFast,
  kGeomeanBest,
  kGeomeanCorrectBest,
  kSecondsPerSolved,
  kDevicePerSolved,
  kPromptPerSolved,
  kCompletionPerSolved,
  kMoneyPerSolved,
  kBestAtK
};

// The metrics of the list, as sums over problems and counts.
class Accumulator {
 public:
  explicit Accumulator(const std::vector<int>& k_values)
      : k_values_(k_values), sums_(kBestAtK + 2 * k_values.size()), counts_(sums_.size()) {}

  // Adds one problem: its episodes and their values, which are sorted here.
  void Add(std::span<const SideEpisode* const> episodes, std::vector<double>& values);
  std::vector<double> Finish();

 private:
  void Count(size_t slot, double value) { sums_[slot] += value, counts_[slot]++; }
  void AddAverages(const std::vector<double>& values);
  void AddBest(const std::vector<double>& ascending);

  const std::vector<int>& k_values_;
  std::vector<double> sums_, counts_;
};

}  // namespace report
}  // namespace kevin
