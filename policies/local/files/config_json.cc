#include <nlohmann/json.hpp>

#include "policies/local/files/model_config.h"

namespace kevin::local {
namespace {

using Json = nlohmann::ordered_json;

struct FamilyNames {
  const char *type, *architecture;
};

FamilyNames NamesOf(ModelFamily family) {
  switch (family) {
    case ModelFamily::kQwen2:
      return {"qwen2", "Qwen2ForCausalLM"};
    case ModelFamily::kQwen3:
      return {"qwen3", "Qwen3ForCausalLM"};
    case ModelFamily::kQwen3Moe:
      return {"qwen3_moe", "Qwen3MoeForCausalLM"};
    case ModelFamily::kLlama:
      break;
  }
  return {"llama", "LlamaForCausalLM"};
}

Json ScalingJson(const RopeConfig& rope) {
  switch (rope.scaling) {
    case RopeConfig::Scaling::kNone:
      return nullptr;
    case RopeConfig::Scaling::kLinear:
      return {{"rope_type", "linear"}, {"factor", rope.factor}};
    case RopeConfig::Scaling::kLlama3:
      return {{"rope_type", "llama3"},
              {"factor", rope.factor},
              {"low_freq_factor", rope.low_frequency_factor},
              {"high_freq_factor", rope.high_frequency_factor},
              {"original_max_position_embeddings", static_cast<int64_t>(rope.original_context)}};
    case RopeConfig::Scaling::kYarn:
      break;
  }
  Json json = {{"rope_type", "yarn"},
               {"factor", rope.factor},
               {"original_max_position_embeddings", static_cast<int64_t>(rope.original_context)},
               {"beta_fast", rope.beta_fast},
               {"beta_slow", rope.beta_slow}};
  if (!rope.truncate) json["truncate"] = false;
  if (rope.attention_factor) json["attention_factor"] = *rope.attention_factor;
  if (rope.mscale != 0) json["mscale"] = rope.mscale;
  if (rope.mscale_all_dimensions != 0) json["mscale_all_dim"] = rope.mscale_all_dimensions;
  return json;
}

void AddExperts(const ModelConfig& config, Json& json) {
  json["num_experts"] = config.experts;
  json["num_experts_per_tok"] = config.experts_per_token;
  json["moe_intermediate_size"] = config.expert_ffn;
  json["norm_topk_prob"] = config.normalize_expert_weights;
  json["decoder_sparse_step"] = 1;
  json["mlp_only_layers"] = Json::array();
  for (int layer = 0; layer < config.layers; ++layer) {
    if (!config.IsSparse(layer)) json["mlp_only_layers"].push_back(layer);
  }
}

void AddTokens(const GenerationDefaults& tokens, Json& json) {
  if (tokens.begin_token) json["bos_token_id"] = *tokens.begin_token;
  if (tokens.end_tokens.size() == 1) json["eos_token_id"] = tokens.end_tokens[0];
  if (tokens.end_tokens.size() > 1) json["eos_token_id"] = tokens.end_tokens;
  if (tokens.pad_token) json["pad_token_id"] = *tokens.pad_token;
}

}  // namespace

std::string ConfigJson(const ModelConfig& config) {
  const FamilyNames names = NamesOf(config.family);
  const bool yarn = config.rope.scaling == RopeConfig::Scaling::kYarn;
  Json json = {
      {"architectures", {names.architecture}},
      {"model_type", names.type},
      {"hidden_size", config.hidden},
      {"num_hidden_layers", config.layers},
      {"num_attention_heads", config.heads},
      {"num_key_value_heads", config.kv_heads},
      {"head_dim", config.head_dim},
      {"intermediate_size", config.ffn},
      {"vocab_size", config.vocabulary},
      {"max_position_embeddings", yarn ? static_cast<int>(config.rope.original_context) : config.context},
      {"rms_norm_eps", config.norm_epsilon},
      {"hidden_act", "silu"},
      {"tie_word_embeddings", config.tied_embeddings},
      {"rope_theta", config.rope.theta},
      {"rope_scaling", ScalingJson(config.rope)}};
  if (config.family != ModelFamily::kLlama) json["use_sliding_window"] = false;
  if (config.family != ModelFamily::kQwen2) json["attention_bias"] = false;
  if (config.experts > 0) AddExperts(config, json);
  AddTokens(config.generation, json);
  json["torch_dtype"] = config.dtype == NumberType::kBF16  ? "bfloat16"
                        : config.dtype == NumberType::kF16 ? "float16"
                                                           : "float32";
  return json.dump(2) + "\n";
}

std::string GenerationConfigJson(const ModelConfig& config) {
  const GenerationDefaults& defaults = config.generation;
  Json json = Json::object();
  AddTokens(defaults, json);
  json["do_sample"] = defaults.sample;
  if (defaults.temperature) json["temperature"] = *defaults.temperature;
  if (defaults.top_p) json["top_p"] = *defaults.top_p;
  if (defaults.min_p) json["min_p"] = *defaults.min_p;
  if (defaults.top_k) json["top_k"] = *defaults.top_k;
  return json.dump(2) + "\n";
}

}  // namespace kevin::local
