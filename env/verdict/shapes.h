#pragma once
// From verdicts at the shapes of a size set to one verdict on all of them. A candidate is correct if it is
// correct at every shape; the first failure is its outcome and names the shape. Measured values are averaged
// by geometric means with the weights of the shapes, w_i = weight_i / (sum of weights):
//
//   speed-up   r = prod r_i ^ w_i
//   interval   log r -+ sqrt(sum (w_i h_i)^2), h_i = the distance from log r_i to the end of its interval. The
//              shapes have times, inputs and processes of their own, so their errors are independent. Of 99 %
//              intervals the result is one of at least 99 %: the h_i come from Student's t and are no shorter
//              than those of normal errors, for which the sum in quadrature is exact.
//   log_se     sqrt(sum (w_i se_i)^2)
//   times      times, rates and floor are weighted geometric means too, so that reference_us / candidate_us
//              agrees with the speed-up
//   counts     pairs and processes are added up
//   max_error  that of the shape nearest to its bound
//
// The verdict is that of the shapes where all of them agree, else what the interval says: all above
// 1 is FAST, all below 1 is SLOW, all within 2 % of 1 is SAME. Pure functions; only the ratios of the weights
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

// The shape to improve first: the one that failed, or the one with the lowest speed-up.
size_t WeakestShape(std::span<const ShapeResult> shapes);

}  // namespace kevin
