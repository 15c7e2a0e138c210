#include "agent/report/estimators.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

namespace kevin {
namespace {
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
}

double FastP(std::span<const double> speedups, double p) {
  if (speedups.empty()) return kNone;
  const auto above = std::count_if(speedups.begin(), speedups.end(), [p](double s) { return s > p; });
  return static_cast<double>(above) / static_cast<double>(speedups.size());
}

double PassAtK(int64_t n, int64_t c, int64_t k) {
  if (k > n || k < 1) return kNone;
  double none_correct = 1;
  for (int64_t i = 0; i < k; ++i)
    none_correct *= static_cast<double>(std::max<int64_t>(n - c - i, 0)) / static_cast<double>(n - i);
  return 1 - none_correct;
}

std::vector<double> BestAtKWeights(int64_t n, int64_t k) {
  std::vector<double> weights(static_cast<size_t>(n), 0.0);
  double weight = static_cast<double>(k) / static_cast<double>(n);
  for (int64_t rank = n; rank >= k && rank >= 1; --rank) {
    weights[static_cast<size_t>(rank - 1)] = weight;
    if (rank > 1) weight *= static_cast<double>(rank - k) / static_cast<double>(rank - 1);
  }
  return weights;
}

double BestAtK(std::span<const double> ascending, int64_t k) {
  const auto n = static_cast<int64_t>(ascending.size());
  if (k > n || k < 1) return kNone;
  double best = 0, weight = static_cast<double>(k) / static_cast<double>(n);
  for (int64_t rank = n; rank >= k; --rank) {
    best += weight * ascending[static_cast<size_t>(rank - 1)];
    if (rank > 1) weight *= static_cast<double>(rank - k) / static_cast<double>(rank - 1);
  }
  return best;
}

double QuantileOfSorted(std::span<const double> ascending, double share) {
  if (ascending.empty()) return kNone;
  const double at = share * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<size_t>(at);
  if (below + 1 >= ascending.size()) return ascending.back();
  const double part = at - static_cast<double>(below);
  return ascending[below] * (1 - part) + ascending[below + 1] * part;
}

std::vector<double> HolmAdjusted(std::span<const double> p_values) {
  std::vector<size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p_values[a] < p_values[b]; });
  std::vector<double> adjusted(p_values.size());
  double largest = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    largest = std::max(largest, std::min(1.0, p_values[order[i]] * static_cast<double>(order.size() - i)));
    adjusted[order[i]] = largest;
  }
  return adjusted;
}

namespace report {

void Accumulator::Add(std::span<const SideEpisode* const> episodes, std::vector<double>& values) {
  double turns = 0, compiled = 0, correct = 0;
  for (const SideEpisode* e : episodes) {
    turns += e->turns, compiled += e->compiled, correct += e->correct;
    sums_[kSecondsPerSolved] += e->seconds, sums_[kDevicePerSolved] += e->device_s;
    sums_[kPromptPerSolved] += e->prompt_tokens, sums_[kCompletionPerSolved] += e->completion_tokens;
    sums_[kMoneyPerSolved] += e->cost_usd;
  }
  if (turns > 0) Count(kCompiled, compiled / turns), Count(kCorrect, correct / turns);
  AddAverages(values);
  std::sort(values.begin(), values.end());
  AddBest(values);
}

std::vector<double> Accumulator::Finish() {
  const double solved = sums_[kSolvedBest];
  for (const size_t slot :
       {kSecondsPerSolved, kDevicePerSolved, kPromptPerSolved, kCompletionPerSolved, kMoneyPerSolved})
    counts_[slot] = sums_[slot] > 0 ? solved : 0;
  for (size_t slot = kBestAtK; slot < sums_.size(); ++slot) {
    if (counts_[slot] < counts_[kMeanBest]) counts_[slot] = 0;  // some problem has fewer episodes
  }
  std::vector<double> metrics(sums_.size(), kNotKnown);
  for (size_t i = 0; i < sums_.size(); ++i) {
    if (counts_[i] > 0) metrics[i] = sums_[i] / counts_[i];
  }
  for (const size_t slot : {kGeomean, kGeomeanCorrect, kGeomeanBest, kGeomeanCorrectBest})
    metrics[slot] = std::exp(metrics[slot]);
  return metrics;
}

void Accumulator::AddAverages(const std::vector<double>& values) {
  double correct = 0, sum = 0, logs = 0;
  std::array<double, kFast> above{};
  for (const double v : values) {
    if (v <= 0) continue;
    correct++, sum += v, logs += std::log(v);
    for (size_t p = 0; p < kFast; ++p) above[p] += v > kFastThresholds[p];
  }
  const auto n = static_cast<double>(values.size());
  Count(kSolvedAvg, correct / n);
  for (size_t p = 0; p < kFast; ++p) Count(kFastAvg + p, above[p] / n);
  Count(kMeanAvg, sum / n), Count(kGeomean, logs / n);
  if (correct > 0) Count(kMeanCorrect, sum / correct), Count(kGeomeanCorrect, logs / correct);
}

void Accumulator::AddBest(const std::vector<double>& ascending) {
  const double best = ascending.back();
  Count(kSolvedBest, best > 0);
  for (size_t p = 0; p < kFast; ++p) Count(kFastBest + p, best > kFastThresholds[p]);
  Count(kMeanBest, best), Count(kGeomeanBest, best > 0 ? std::log(best) : 0);
  if (best > 0) Count(kGeomeanCorrectBest, std::log(best));
  const auto n = static_cast<int64_t>(ascending.size());
  const auto correct = ascending.end() - std::upper_bound(ascending.begin(), ascending.end(), 0.0);
  for (size_t i = 0; i < k_values_.size() && k_values_[i] <= n; ++i) {
    Count(kBestAtK + i, BestAtK(ascending, k_values_[i]));
    Count(kBestAtK + k_values_.size() + i, PassAtK(n, correct, k_values_[i]));
  }
}

}  // namespace report

}  // namespace kevin
