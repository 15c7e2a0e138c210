#pragma once
// From verdicts at the shapes of a size set to one on all of them. A candidate is right if it is right at
// every shape; the first failure is its outcome and says at which. What is measured is averaged by geometric
// means with the shapes' weights, w_i = weight_i / (sum of weights):
//
//   speed-up   r = prod r_i ^ w_i
//   interval   log r -+ sqrt(sum (w_i h_i)^2), with h_i the distance from log r_i to the end of shape i's
//   interval:
//              the shapes have times, inputs and processes of their own, so that their errors are
//              independent. Of 99 % intervals the result is one of at least 99 %: their h_i, from Student's
//              t, are no shorter than those of normal errors, for which the sum in quadrature is exact.
//   log_se     sqrt(sum (w_i se_i)^2)
//   the rest   times, rates and floor are weighted geometric means too, so that reference_us / candidate_us
//   goes with
//              the speed-up; pairs and processes are added up; max_error is that of the shape nearest to its
//              bound.
//
// The verdict is that of the sequential tests where all shapes agree, else what the interval says: all above
// 1 is FAST, all below is SLOW, all within 2 % of 1 is SAME. Pure functions; shares of the weights alone
// matter.

#include <span>
#include <vector>

#include "env/environment.h"

namespace kevin {

struct WeightedValue {
  double value = 0;
  double weight = 1;  // above 0
};
// 0, which stands for unknown, if any value is.
double WeightedGeometricMean(std::span<const WeightedValue> values);

struct WeightedRatio {
  Ratio ratio;
  double weight = 1;  // above 0
};
Ratio CombineRatios(std::span<const WeightedRatio> ratios);  // at least one

// All shapes' outcomes must be Measured, and there must be one. against_start is there if all have it.
Measured CombineMeasured(std::span<const ShapeResult> shapes);

// Which of the shapes says most about what to mend: the one that failed, or the one with the lowest speed-up.
size_t WeakestShape(std::span<const ShapeResult> shapes);

}  // namespace kevin
