#include "policies/local/train/plan_counts.h"

#include <algorithm>
#include <vector>

namespace kevin::local {

NumberType TypeOf(const ModelConfig& config, const TrainOptions& options) {
  if (options.dtype == "float32") return NumberType::kF32;
  return options.dtype == "bfloat16" ? NumberType::kBF16 : config.dtype;
}

double BitsOfWeight(const ExpectedTensor& tensor, const std::string& quantization, int dense) {
  if (tensor.role != ExpectedTensor::Role::kProjection || quantization == "none") return 8.0 * dense;
  if (quantization == "int8") return 8;
  return quantization == "nf4" ? 4 + 32.0 / 64 : 4 + 8.0 / 64 + 32.0 / (64 * 256);
}

int64_t AdapterNumbers(const ExpectedTensor& tensor, const LoraOptions& lora) {
  if (tensor.role != ExpectedTensor::Role::kProjection) return 0;
  const std::vector<std::string> targets = TargetsOf(lora);
  const std::string name = tensor.name.substr(0, tensor.name.rfind('.'));
  const bool is_target =
      targets.empty() || std::any_of(targets.begin(), targets.end(),
                                     [&](const std::string& target) { return name.ends_with("." + target); });
  return is_target ? lora.rank * (tensor.shape[0] + tensor.shape[1]) : 0;
}

Widths WidthsOf(const ModelConfig& c) {
  const int64_t h = c.hidden, q = static_cast<int64_t>(c.heads) * c.head_dim,
                kv = static_cast<int64_t>(c.kv_heads) * c.head_dim;
  Widths widths;
  // The layer's input and its norm; the projection, rotated heads, attention's output; the sum after it.
  widths.attention = 2 * h + 2 * (q + 2 * kv) + q + 2 * h;
  // The second norm; gate and up, their product; of experts those of one token, with its copies.
  widths.ffn = h + 3 * static_cast<int64_t>(c.ffn);
  if (c.experts > 0) widths.ffn = h + c.experts_per_token * (3 * static_cast<int64_t>(c.expert_ffn) + 3 * h);
  return widths;
}

}  // namespace kevin::local
