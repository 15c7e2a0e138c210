#pragma once
// Inside of the metrics, shared by metrics.cc and bootstrap.cc: sums over problems, from which all metrics of
// the list follow.

#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "agent/report/metrics.h"

namespace kevin::report {

inline constexpr size_t kFast = kFastThresholds.size();

// Where a metric stands in the list.
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

// Metrics of the list as sums over problems and counts.
class Accumulator {
 public:
  explicit Accumulator(const std::vector<int>& k_values)
      : k_values_(k_values), sums_(kBestAtK + 2 * k_values.size()), counts_(sums_.size()) {}

  // One problem: its episodes, and what each of them is worth, which is sorted here.
  void Add(std::span<const SideEpisode* const> episodes, std::vector<double>& values);
  std::vector<double> Finish();

 private:
  void Count(size_t slot, double value) { sums_[slot] += value, counts_[slot]++; }
  void AddAverages(const std::vector<double>& values);
  void AddBest(const std::vector<double>& ascending);

  const std::vector<int>& k_values_;
  std::vector<double> sums_, counts_;
};

}  // namespace kevin::report
