#include "policies/local/model/language_model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "env/error.h"
#include "policies/local/files/safetensors.h"
#include "policies/local/files/tensor_list.h"
#include "policies/local/model/apply_weights.h"
#include "policies/local/model/attention.h"
#include "policies/local/model/build_weights.h"
#include "policies/local/model/device.h"
#include "policies/local/model/primitives.h"

namespace kevin::local {
namespace {

void AddLeaves(const Linear& linear, bool adapters, std::vector<NamedParameter>& all) {
  for (const Projection& part : linear.parts) {
    if (adapters) {
      all.push_back({"base_model.model." + part.name + ".lora_A.weight", part.lora_a});
      all.push_back({"base_model.model." + part.name + ".lora_B.weight", part.lora_b});
    } else {
      all.push_back({part.name + ".weight", part.weight});
      all.push_back({part.name + ".bias", part.bias});
    }
  }
}

void AddLeaves(const ExpertAdapters& adapters, const std::string& name, std::vector<NamedParameter>& all) {
  all.push_back({"base_model.model." + name + ".lora_A.weight", adapters.a});
  all.push_back({"base_model.model." + name + ".lora_B.weight", adapters.b});
}

std::vector<NamedParameter> LeavesOf(const Layer& layer, const std::string& prefix, bool adapters) {
  std::vector<NamedParameter> all;
  all.push_back({prefix + "input_layernorm.weight", layer.input_norm});
  AddLeaves(layer.qkv, adapters, all);
  all.push_back({prefix + "self_attn.q_norm.weight", layer.q_norm});
  all.push_back({prefix + "self_attn.k_norm.weight", layer.k_norm});
  AddLeaves(layer.o, adapters, all);
  all.push_back({prefix + "post_attention_layernorm.weight", layer.ffn_norm});
  AddLeaves(layer.gate_up, adapters, all);
  AddLeaves(layer.down, adapters, all);
  all.push_back({prefix + "mlp.gate.weight", layer.experts.router});
  all.push_back({prefix + "mlp.experts.gate_up_proj", layer.experts.gate_up});
  all.push_back({prefix + "mlp.experts.down_proj", layer.experts.down});
  AddLeaves(layer.experts.lora_gate, prefix + "mlp.experts.gate_proj", all);
  AddLeaves(layer.experts.lora_up, prefix + "mlp.experts.up_proj", all);
  AddLeaves(layer.experts.lora_down, prefix + "mlp.experts.down_proj", all);
  std::erase_if(
      all, [](const NamedParameter& leaf) { return !leaf.value.defined() || !leaf.value.requires_grad(); });
  return all;
}

std::string LayerPrefix(size_t layer) { return fmt::format("model.layers.{}.", layer); }

void CheckOptions(const ModelOptions& options) {
  if (options.dtype != NumberType::kF32 && options.dtype != NumberType::kBF16 &&
      options.dtype != NumberType::kF16)
    throw Error(ExitCode::kBadRequest, fmt::format("a model cannot compute in {}", NameOf(options.dtype)),
                "use F32, BF16 or F16");
  if (options.trainable && options.quantization != Quantization::kNone)
    throw Error(ExitCode::kBadRequest, "quantised weights cannot be trained",
                "train adapters (LoRA) on them");
  OpenCuda(options.device);
}

}  // namespace

at::ScalarType TorchType(NumberType type) {
  switch (type) {
    case NumberType::kBool:
      return at::kBool;
    case NumberType::kU8:
      return at::kByte;
    case NumberType::kI8:
      return at::kChar;
    case NumberType::kI16:
      return at::kShort;
    case NumberType::kI32:
      return at::kInt;
    case NumberType::kI64:
      return at::kLong;
    case NumberType::kF8E4M3:
      return at::kFloat8_e4m3fn;
    case NumberType::kF8E5M2:
      return at::kFloat8_e5m2;
    case NumberType::kF16:
      return at::kHalf;
    case NumberType::kBF16:
      return at::kBFloat16;
    case NumberType::kF32:
      return at::kFloat;
    case NumberType::kF64:
      break;
  }
  return at::kDouble;
}

LanguageModel::LanguageModel(ModelConfig config, ModelOptions options, Weights weights)
    : config_(std::move(config)), options_(options), weights_(std::move(weights)) {}

at::Tensor LanguageModel::Whole(at::Tensor partial) const {
  if (partial_sum_) partial_sum_(&partial);
  return partial;
}

at::Tensor LanguageModel::RunLayer(int index, const at::Tensor& x, const at::Tensor& cos,
                                   const at::Tensor& sin, const Attend& attend) const {
  const Layer& layer = weights_.layers[static_cast<size_t>(index)];
  const double epsilon = config_.norm_epsilon;
  const at::Tensor qkv =
      Apply(layer.qkv, RmsNorm(x, layer.input_norm, epsilon)).view({x.size(0), -1, config_.head_dim});
  const Heads of = PrepareHeads(qkv, config_.kv_heads, layer.q_norm, layer.k_norm, epsilon, cos, sin);
  const auto [middle, normed] =
      AddAndNorm(x, Whole(Apply(layer.o, attend(index, of.q, of.k, of.v))), layer.ffn_norm, epsilon);
  if (config_.IsSparse(index)) return Add(middle, ApplyExperts(layer.experts, config_, normed));
  return Add(middle, Whole(Apply(layer.down, Swiglu(Apply(layer.gate_up, normed)))));
}

at::Tensor LanguageModel::Run(const at::Tensor& ids, const at::Tensor& positions, const Attend& attend,
                              Keep keep) const {
  at::Tensor x = at::embedding(weights_.embedding, ids);
  const at::Tensor cos = weights_.rope_cos.index_select(0, positions);
  const at::Tensor sin = weights_.rope_sin.index_select(0, positions);
  for (int layer = 0; layer < config_.layers; ++layer) {
    const auto run = [this, layer, cos, sin, attend](const at::Tensor& in) {
      return RunLayer(layer, in, cos, sin, attend);
    };
    if (keep == Keep::kAll) {
      x = run(x);
      continue;
    }
    std::vector<at::Tensor> leaves;
    for (const NamedParameter& leaf :
         LeavesOf(weights_.layers[static_cast<size_t>(layer)], "", has_adapters_))
      leaves.push_back(leaf.value);
    if (keep == Keep::kInputs) {
      x = Checkpointed(x, leaves, run);
      continue;
    }
    RunHooks hooks;
    hooks.before = [this, layer](bool backward) { hooks_.begin(layer, backward); };
    hooks.after = [this, layer] { hooks_.end(layer); };
    hooks.take = [this, layer](const std::vector<at::Tensor>& gradients) { hooks_.take(layer, gradients); };
    x = CheckpointedWith(x, leaves, run, std::move(hooks));
  }
  return RmsNorm(x, weights_.norm, config_.norm_epsilon);
}

at::Tensor LanguageModel::Hidden(const PackedTokens& tokens) {
  const RaggedRows rows = PackedRows(tokens.starts, tokens.ids.device());
  const Attend attend = [rows](int, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    return AttendRagged(q, k, v, rows);
  };
  return WithTorchErrors("running the model", [&] {
    if (hooks_.begin) return Run(tokens.ids, tokens.positions, attend, Keep::kHooks);
    const bool again = options_.checkpoint_layers && at::GradMode::is_enabled();
    return Run(tokens.ids, tokens.positions, attend, again ? Keep::kInputs : Keep::kAll);
  });
}

at::Tensor LanguageModel::Hidden(const at::Tensor& ids, const at::Tensor& positions, const Attend& attend) {
  return WithTorchErrors("running the model", [&] { return Run(ids, positions, attend, Keep::kAll); });
}

at::Tensor LanguageModel::Logits(const at::Tensor& hidden) const {
  return WithTorchErrors("computing logits", [&] { return at::linear(hidden, weights_.head); });
}

std::vector<NamedParameter> LanguageModel::LayerParameters(int layer) const {
  const auto index = static_cast<size_t>(layer);
  return LeavesOf(weights_.layers[index], LayerPrefix(index), has_adapters_);
}

std::vector<NamedParameter> LanguageModel::Parameters() const {
  std::vector<NamedParameter> all = {{"model.embed_tokens.weight", weights_.embedding}};
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    for (NamedParameter& leaf : LeavesOf(weights_.layers[i], LayerPrefix(i), has_adapters_))
      all.push_back(std::move(leaf));
  }
  all.push_back({"model.norm.weight", weights_.norm});
  if (!config_.tied_embeddings) all.push_back({"lm_head.weight", weights_.head});
  std::erase_if(all, [](const NamedParameter& leaf) { return !leaf.value.requires_grad(); });
  return all;
}

std::unique_ptr<LanguageModel> LoadLanguageModel(const std::filesystem::path& folder,
                                                 const ModelOptions& options) {
  CheckOptions(options);
  const ModelConfig config = ReadModelConfig(folder);
  const Checkpoint checkpoint = Checkpoint::Open(folder);
  CheckTensors(checkpoint, config);
  return WithTorchErrors("loading " + folder.string(), [&] {
    const std::unique_ptr<WeightSource> source = MakeCheckpointSource(checkpoint, options.device);
    return std::make_unique<LanguageModel>(config, options, BuildWeights(config, options, *source));
  });
}

std::unique_ptr<LanguageModel> MakeRandomLanguageModel(const ModelConfig& config, const ModelOptions& options,
                                                       uint64_t seed) {
  CheckOptions(options);
  return WithTorchErrors("making a random model", [&] {
    const std::unique_ptr<WeightSource> source = MakeRandomSource(seed, options.device);
    return std::make_unique<LanguageModel>(config, options, BuildWeights(config, options, *source));
  });
}

}  // namespace kevin::local
