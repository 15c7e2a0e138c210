#include <algorithm>
#include <cmath>

#include "policies/local/files/model_config.h"

namespace kevin::local {
namespace {

constexpr double kPi = 3.14159265358979323846;

// Slow pairs are stretched by the factor, quick ones left, those between blended.
double Llama3(double frequency, const RopeConfig& rope) {
  const double turns = rope.original_context * frequency / (2 * kPi);  // within the original context
  if (turns < rope.low_frequency_factor) return frequency / rope.factor;
  if (turns > rope.high_frequency_factor) return frequency;
  const double share =
      (turns - rope.low_frequency_factor) / (rope.high_frequency_factor - rope.low_frequency_factor);
  return (1 - share) * frequency / rope.factor + share * frequency;
}

// The pair (as a real number) that turns `turns` times within the original context.
double PairThatTurns(double turns, const RopeConfig& rope, int head_dim) {
  return head_dim * std::log(rope.original_context / (turns * 2 * kPi)) / (2 * std::log(rope.theta));
}

std::vector<double> YarnFrequencies(const std::vector<double>& plain, const RopeConfig& rope, int head_dim) {
  double low = PairThatTurns(rope.beta_fast, rope, head_dim);
  double high = PairThatTurns(rope.beta_slow, rope, head_dim);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, head_dim - 1.0);
  if (low == high) high += 0.001;
  std::vector<double> frequencies;
  for (size_t i = 0; i < plain.size(); ++i) {
    const double stretched = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies.push_back(stretched * plain[i] / rope.factor + (1 - stretched) * plain[i]);
  }
  return frequencies;
}

double YarnAttention(const RopeConfig& rope) {
  const auto factor = [&](double scale) {
    return rope.factor <= 1 ? 1 : 0.1 * scale * std::log(rope.factor) + 1;
  };
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.mscale != 0 && rope.mscale_all_dimensions != 0)
    return factor(rope.mscale) / factor(rope.mscale_all_dimensions);
  return factor(1);
}

}  // namespace

RopeFrequencies FrequenciesOf(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  std::vector<double> frequencies;
  for (int i = 0; i < config.head_dim; i += 2) {
    double frequency = std::pow(rope.theta, -static_cast<double>(i) / config.head_dim);
    if (rope.scaling == RopeConfig::Scaling::kLinear) frequency /= rope.factor;
    if (rope.scaling == RopeConfig::Scaling::kLlama3) frequency = Llama3(frequency, rope);
    frequencies.push_back(frequency);
  }
  RopeFrequencies result;
  if (rope.scaling == RopeConfig::Scaling::kYarn) {
    frequencies = YarnFrequencies(frequencies, rope, config.head_dim);
    result.attention_factor = static_cast<float>(YarnAttention(rope));
  }
  for (const double frequency : frequencies) result.frequencies.push_back(static_cast<float>(frequency));
  return result;
}

}  // namespace kevin::local
