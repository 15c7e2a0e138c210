#pragma once
// The learning rate of each update of the weights. Pure arithmetic.
//
// With U updates in all, of which W = ceil(warmup * U) warm up, update u (from 0) has
//   u < W      rate * (u + 1) / W
//   else       rate * (f + (1 - f) * shape(p)),  p = (u - W) / max(1, U - W), f = final_fraction
// where shape is 1 (constant), (1 + cos(pi p)) / 2 (cosine) or 1 - p (linear).

#include <cstdint>

#include "policies/local/train/options.h"

namespace kevin::local {

double LearningRate(const ScheduleOptions& options, int64_t update, int64_t updates);

}  // namespace kevin::local
