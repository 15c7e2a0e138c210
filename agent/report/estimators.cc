#include "agent/report/estimators.h"

#include <algorithm>
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
  double none_right = 1;
  for (int64_t i = 0; i < k; ++i)
    none_right *= static_cast<double>(std::max<int64_t>(n - c - i, 0)) / static_cast<double>(n - i);
  return 1 - none_right;
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

}  // namespace kevin
