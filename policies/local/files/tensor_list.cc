#include "policies/local/files/tensor_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

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

}  // namespace kevin::local
