#include "policies/local/files/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "policies/local/files/tensor_list.h"

namespace kevin::local {
namespace {

constexpr int64_t kLeastContext = 1024;        // below this a model is of no use here
constexpr double kUsable = 0.95;               // of the device: the rest goes to fragments and libraries
constexpr int kBlock = 64, kScaleGroup = 256;  // of NF4

int64_t BytesStored(const ExpectedTensor& tensor, const MemoryRequest& request) {
  const int64_t count = tensor.Count();
  const bool projection = tensor.role == ExpectedTensor::Role::kProjection;
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  switch (projection ? request.quantization : Quantization::kNone) {
    case Quantization::kInt8:
      return count + tensor.shape[0] * 4;
    case Quantization::kNf4:
      return blocks * (kBlock / 2 + 4);
    case Quantization::kNf4Double:
      return blocks * (kBlock / 2 + 1) + (blocks + kScaleGroup - 1) / kScaleGroup * 4;
    case Quantization::kNone:
      break;
  }
  return count * BytesOf(request.dtype);
}

// Of the largest step, generously: what a layer holds at once, the logits, and a projection in full.
int64_t ActivationBytes(const ModelConfig& config, const MemoryRequest& request) {
  const int64_t bytes = BytesOf(request.dtype), hidden = config.hidden;
  const int64_t q = static_cast<int64_t>(config.heads) * config.head_dim;
  const int64_t kv = static_cast<int64_t>(config.kv_heads) * config.head_dim;
  const int64_t attention = 2 * (2 * q + 2 * kv) + q;
  int64_t ffn = 3 * static_cast<int64_t>(config.ffn), largest = 2 * static_cast<int64_t>(config.ffn) * hidden;
  if (config.experts > 0) {
    ffn =
        std::max(ffn, config.experts_per_token * (3 * static_cast<int64_t>(config.expert_ffn) + 2 * hidden));
    largest = std::max(largest, 2 * static_cast<int64_t>(config.expert_ffn) * hidden * config.experts);
  }
  const int64_t token = (4 * hidden + std::max(attention, ffn)) * bytes;
  const int64_t logits = static_cast<int64_t>(request.step_sequences) * config.vocabulary * (bytes + 5 * 4);
  const int64_t dequantized = request.quantization == Quantization::kNone ? 0 : largest * (bytes + 8);
  return request.step_tokens * token + logits + dequantized;
}

std::string Gb(int64_t bytes) { return fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9); }

std::string Message(const ModelConfig& config, const MemoryRequest& request, const MemoryPlan& plan) {
  std::string quantized;
  if (request.quantization != Quantization::kNone)
    quantized = fmt::format(", {}", NameOf(request.quantization));
  std::string text = fmt::format(
      "{:.2f} B parameters ({}{}): weights {}, scratch {}, cache {:.1f} KiB a token; {} available",
      static_cast<double>(plan.parameters) / 1e9, NameOf(request.dtype), quantized, Gb(plan.weight_bytes),
      Gb(plan.activation_bytes), static_cast<double>(plan.cache_bytes_per_token) / 1024,
      Gb(request.device_bytes));
  if (plan.fits)
    return text +
           fmt::format(": room for {} tokens, {:.1f} sequences of {}", plan.cache_tokens,
                       static_cast<double>(plan.cache_tokens) / static_cast<double>(plan.context_tokens),
                       plan.context_tokens);
  const int64_t wanted =
      request.context_tokens > 0 ? request.context_tokens : std::min<int64_t>(config.context, kLeastContext);
  if (plan.cache_tokens > 0)
    return text + fmt::format(": room for {} tokens only, {} are needed", plan.cache_tokens, wanted);
  text += ": it does not fit";
  for (const Quantization smaller : {Quantization::kInt8, Quantization::kNf4Double}) {
    MemoryRequest other = request;
    other.quantization = smaller;
    if (smaller > request.quantization && PlanMemory(config, other).fits)
      return text + fmt::format("; with --quantization {} it does", NameOf(smaller));
  }
  return text;
}

}  // namespace

const char* NameOf(Quantization quantization) {
  switch (quantization) {
    case Quantization::kInt8:
      return "int8";
    case Quantization::kNf4:
      return "nf4";
    case Quantization::kNf4Double:
      return "nf4-double";
    case Quantization::kNone:
      break;
  }
  return "none";
}

MemoryPlan PlanMemory(const ModelConfig& config, const MemoryRequest& request) {
  MemoryPlan plan;
  for (const ExpectedTensor& tensor : ExpectedTensors(config)) {
    plan.parameters += tensor.Count();
    plan.weight_bytes += BytesStored(tensor, request);
  }
  plan.weight_bytes += static_cast<int64_t>(config.context) * config.head_dim * 4;  // rope tables
  plan.cache_bytes_per_token =
      2ll * config.layers * config.kv_heads * config.head_dim * BytesOf(request.dtype);
  plan.activation_bytes = ActivationBytes(config, request);
  // One layer's keys and values are gathered at a time.
  const int64_t page_bytes =
      request.page_tokens * (plan.cache_bytes_per_token + plan.cache_bytes_per_token / config.layers);
  const int64_t room = static_cast<int64_t>(static_cast<double>(request.device_bytes) * kUsable) -
                       plan.weight_bytes - plan.activation_bytes;
  plan.pages = std::max<int64_t>(0, room / page_bytes);
  plan.cache_tokens = plan.pages * request.page_tokens;
  const int64_t context = request.context_tokens > 0 ? request.context_tokens : config.context;
  const int64_t wanted =
      request.context_tokens > 0 ? request.context_tokens : std::min<int64_t>(context, kLeastContext);
  plan.context_tokens = std::min(context, plan.cache_tokens);
  plan.fits = plan.cache_tokens >= wanted;
  plan.message = Message(config, request, plan);
  return plan;
}

}  // namespace kevin::local
