#include "policies/local/files/tensor_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "env/error.h"

namespace kevin::local {

namespace {

using Role = ExpectedTensor::Role;

constexpr size_t kNamesShown = 5;

class Lister {
 public:
  explicit Lister(const ModelConfig& config) : config_(config) {}

  std::vector<ExpectedTensor> List() {
    Add("model.embed_tokens.weight", {config_.vocabulary, config_.hidden}, Role::kEmbedding);
    for (int layer = 0; layer < config_.layers; ++layer) AddLayer(layer);
    Add("model.norm.weight", {config_.hidden}, Role::kNorm);
    if (!config_.tied_embeddings) Add("lm_head.weight", {config_.vocabulary, config_.hidden}, Role::kHead);
    return std::move(tensors_);
  }

 private:
  void Add(const std::string& name, std::vector<int64_t> shape, Role role, bool is_expert = false) {
    tensors_.push_back({name, std::move(shape), role, is_expert});
  }

  void AddLayer(int layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    const int64_t hidden = config_.hidden, q = static_cast<int64_t>(config_.heads) * config_.head_dim;
    const int64_t kv = static_cast<int64_t>(config_.kv_heads) * config_.head_dim;
    Add(prefix + "input_layernorm.weight", {hidden}, Role::kNorm);
    for (const auto& [name, rows] :
         {std::pair("q_proj", q), std::pair("k_proj", kv), std::pair("v_proj", kv)}) {
      Add(prefix + "self_attn." + name + ".weight", {rows, hidden}, Role::kProjection);
      if (config_.qkv_bias) Add(prefix + "self_attn." + name + ".bias", {rows}, Role::kBias);
    }
    if (config_.qk_norm) {
      Add(prefix + "self_attn.q_norm.weight", {config_.head_dim}, Role::kNorm);
      Add(prefix + "self_attn.k_norm.weight", {config_.head_dim}, Role::kNorm);
    }
    Add(prefix + "self_attn.o_proj.weight", {hidden, q}, Role::kProjection);
    Add(prefix + "post_attention_layernorm.weight", {hidden}, Role::kNorm);
    if (!config_.IsSparse(layer)) return AddFfn(prefix + "mlp.", config_.ffn, false);
    Add(prefix + "mlp.gate.weight", {config_.experts, hidden}, Role::kRouter);
    for (int expert = 0; expert < config_.experts; ++expert)
      AddFfn(fmt::format("{}mlp.experts.{}.", prefix, expert), config_.expert_ffn, true);
  }

  void AddFfn(const std::string& prefix, int64_t ffn, bool is_expert) {
    Add(prefix + "gate_proj.weight", {ffn, config_.hidden}, Role::kProjection, is_expert);
    Add(prefix + "up_proj.weight", {ffn, config_.hidden}, Role::kProjection, is_expert);
    Add(prefix + "down_proj.weight", {config_.hidden, ffn}, Role::kProjection, is_expert);
  }

  const ModelConfig& config_;
  std::vector<ExpectedTensor> tensors_;
};

std::string ShapeText(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

bool IsPassedOver(const std::string& name, const ModelConfig& config) {
  return (config.tied_embeddings && name == "lm_head.weight") || name.ends_with(".rotary_emb.inv_freq");
}

std::string Some(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kNamesShown);
  std::string text =
      fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<long>(shown), ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

[[noreturn]] void RefuseList(const Checkpoint& checkpoint, const std::string& what) {
  throw Error(ExitCode::kBadRequest, fmt::format("{}: {}", checkpoint.Path().string(), what),
              "config.json and the weights must be of one model");
}

}  // namespace

int64_t ExpectedTensor::Count() const {
  int64_t count = 1;
  for (const int64_t length : shape) count *= length;
  return count;
}

std::vector<ExpectedTensor> ExpectedTensors(const ModelConfig& config) { return Lister(config).List(); }

void CheckTensors(const Checkpoint& checkpoint, const ModelConfig& config) {
  std::vector<std::string> missing, extra;
  std::set<std::string> known;
  for (const ExpectedTensor& expected : ExpectedTensors(config)) {
    known.insert(expected.name);
    const StoredTensor* stored = checkpoint.Find(expected.name);
    if (!stored) {
      missing.push_back(expected.name);
      continue;
    }
    if (stored->shape != expected.shape)
      RefuseList(checkpoint, fmt::format("tensor `{}` is {}, but config.json makes it {}", expected.name,
                                         ShapeText(stored->shape), ShapeText(expected.shape)));
    if (stored->type != NumberType::kF32 && stored->type != NumberType::kF16 &&
        stored->type != NumberType::kBF16)
      RefuseList(checkpoint, fmt::format("tensor `{}` is of type {}; F32, F16 and BF16 are supported",
                                         expected.name, NameOf(stored->type)));
  }
  for (const auto& [name, stored] : checkpoint.Tensors()) {
    if (!known.contains(name) && !IsPassedOver(name, config)) extra.push_back(name);
  }
  if (!missing.empty())
    RefuseList(checkpoint, fmt::format("{} tensors are missing: {}", missing.size(), Some(missing)));
  if (!extra.empty())
    RefuseList(checkpoint,
               fmt::format("{} tensors have no place in this model: {}", extra.size(), Some(extra)));
}

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

// An upper estimate for the largest step: the tensors of a layer, the logits, and one dequantised projection.
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
