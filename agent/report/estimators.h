#pragma once
// The formulas that reports are made of. Pure; any thread.

#include <cstdint>
#include <span>
#include <vector>

namespace kevin {

// fast_p, KernelBench (arXiv 2502.10517): the share of `speedups` above `p`; 0 stands for a failure, so that
// fast_0 is the share that is right.
double FastP(std::span<const double> speedups, double p);

// Of n samples c are right: the chance that k of them, drawn without replacement, hold a right one.
// 1 - C(n-c, k) / C(n, k); Chen and others, arXiv 2107.03374. NaN where k > n.
double PassAtK(int64_t n, int64_t c, int64_t k);

// Expected largest of k values drawn without replacement from those given: sum over ranks i of
// C(i-1, k-1) / C(n, k) x_(i), the order-statistic estimator, unbiased for the best of k fresh samples.
// `ascending` must be sorted. NaN where k > n.
double BestAtK(std::span<const double> ascending, int64_t k);
// The weights alone, by rank from the smallest.
std::vector<double> BestAtKWeights(int64_t n, int64_t k);

// Linear between neighbours; `share` from 0 to 1. NaN for no values.
double QuantileOfSorted(std::span<const double> ascending, double share);

// Holm's step-down correction: p-values as they come, adjusted in the same order.
std::vector<double> HolmAdjusted(std::span<const double> p_values);

}  // namespace kevin
