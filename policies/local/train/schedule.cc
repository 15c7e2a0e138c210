#include "policies/local/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace kevin::local {

double LearningRate(const ScheduleOptions& options, int64_t update, int64_t updates) {
  const auto warmup = static_cast<int64_t>(std::ceil(options.warmup * static_cast<double>(updates)));
  if (update < warmup) {
    return options.learning_rate * static_cast<double>(update + 1) / static_cast<double>(warmup);
  }
  if (options.decay == Decay::kConstant) return options.learning_rate;
  const double left = static_cast<double>(std::max<int64_t>(1, updates - warmup));
  const double p = std::min(1.0, static_cast<double>(update - warmup) / left);
  const double shape = options.decay == Decay::kLinear ? 1 - p : (1 + std::cos(std::numbers::pi * p)) / 2;
  const double f = options.final_fraction;
  return options.learning_rate * (f + (1 - f) * shape);
}

}  // namespace kevin::local
