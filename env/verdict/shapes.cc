#include "env/verdict/shapes.h"

#include <algorithm>
#include <cmath>

#include "env/verdict/verify.h"

namespace kevin {
namespace {

// Each weight's share of the sum, which may itself be too large for a double.
template <class Weighted>
std::vector<double> Shares(std::span<const Weighted> list) {
  double largest = 0, sum = 0;
  for (const Weighted& one : list) largest = std::max(largest, one.weight);
  std::vector<double> shares;
  for (const Weighted& one : list) shares.push_back(one.weight / largest);
  for (const double share : shares) sum += share;
  for (double& share : shares) share /= sum;
  return shares;
}

double MeanOf(std::span<const ShapeResult> shapes, double Measured::*field) {
  std::vector<WeightedValue> values;
  for (const ShapeResult& shape : shapes)
    values.push_back({std::get<Measured>(shape.outcome).*field, shape.weight});
  return WeightedGeometricMean(values);
}

Verdict VerdictOfShapes(std::span<const ShapeResult> shapes, Verdict Measured::*field, const Ratio& ratio) {
  const Verdict first = std::get<Measured>(shapes.front().outcome).*field;
  const bool agree = std::all_of(shapes.begin(), shapes.end(), [&](const ShapeResult& shape) {
    return std::get<Measured>(shape.outcome).*field == first;
  });
  return agree && first != Verdict::kAmbiguous ? first : VerdictOf(ratio);
}

}  // namespace

double WeightedGeometricMean(std::span<const WeightedValue> values) {
  const std::vector<double> shares = Shares(values);
  double log_mean = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].value <= 0) return 0;
    log_mean += shares[i] * std::log(values[i].value);
  }
  return std::exp(log_mean);
}

Ratio CombineRatios(std::span<const WeightedRatio> ratios) {
  const std::vector<double> shares = Shares(ratios);
  Ratio combined;
  double log_value = 0, below = 0, above = 0, se = 0;
  for (size_t i = 0; i < ratios.size(); ++i) {
    const Ratio& ratio = ratios[i].ratio;
    const double w = shares[i], log_ratio = std::log(ratio.value);
    log_value += w * log_ratio;
    below = std::hypot(below, w * (log_ratio - std::log(ratio.low)));
    above = std::hypot(above, w * (std::log(ratio.high) - log_ratio));
    se = std::hypot(se, w * ratio.log_se);
    combined.pairs += ratio.pairs;
    combined.processes += ratio.processes;
  }
  combined.value = std::exp(log_value);
  combined.low = std::exp(log_value - below);
  combined.high = std::exp(log_value + above);
  combined.log_se = se;
  return combined;
}

Measured CombineMeasured(std::span<const ShapeResult> shapes) {
  Measured combined;
  std::vector<WeightedRatio> speedups, against_start;
  const Measured* nearest = nullptr;
  for (const ShapeResult& shape : shapes) {
    const auto& measured = std::get<Measured>(shape.outcome);
    speedups.push_back({measured.speedup, shape.weight});
    if (measured.against_start) against_start.push_back({*measured.against_start, shape.weight});
    if (nearest == nullptr || IsNearerItsBound(measured, *nearest)) nearest = &measured;
  }
  combined.speedup = CombineRatios(speedups);
  combined.verdict = VerdictOfShapes(shapes, &Measured::verdict, combined.speedup);
  if (against_start.size() == shapes.size()) {
    combined.against_start = CombineRatios(against_start);
    combined.verdict_against_start =
        VerdictOfShapes(shapes, &Measured::verdict_against_start, *combined.against_start);
  }
  for (const auto field : {&Measured::candidate_us, &Measured::reference_us, &Measured::gb_per_s,
                           &Measured::gflop_per_s, &Measured::floor_us}) {
    combined.*field = MeanOf(shapes, field);
  }
  combined.max_error = nearest->max_error;
  combined.error_bound = nearest->error_bound;
  return combined;
}

size_t WeakestShape(std::span<const ShapeResult> shapes) {
  const auto speedup = [](const ShapeResult& shape) {
    const auto* measured = std::get_if<Measured>(&shape.outcome);
    return measured ? measured->speedup.value : -1;
  };
  const auto weakest =
      std::min_element(shapes.begin(), shapes.end(),
                       [&](const ShapeResult& a, const ShapeResult& b) { return speedup(a) < speedup(b); });
  return static_cast<size_t>(weakest - shapes.begin());
}

}  // namespace kevin
