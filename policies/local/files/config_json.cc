#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "env/error.h"
#include "policies/local/files/model_config.h"

namespace kevin::local {

namespace {

constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();

std::string Shown(const nlohmann::json& value) {
  const std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return text.size() <= 80 ? text : text.substr(0, 77) + "...";
}

bool IsToken(const nlohmann::json& value) {
  return value.is_number_integer() && value.get<int64_t>() >= 0 && value.get<int64_t>() <= kLargest;
}

}  // namespace

ConfigFields::ConfigFields(nlohmann::json json, std::string name)
    : json_(std::move(json)), name_(std::move(name)) {
  if (!json_.is_object()) throw Error(ExitCode::kBadRequest, name_ + " is no JSON object");
}

ConfigFields ConfigFields::Parse(const std::string& text, const std::string& name) {
  try {
    return {nlohmann::json::parse(text), name};
  } catch (const nlohmann::json::parse_error& error) {
    throw Error(ExitCode::kBadRequest, fmt::format("{} is not JSON: wrong at byte {}", name, error.byte));
  }
}

const nlohmann::json* ConfigFields::Find(const std::string& field) const {
  const auto found = json_.find(field);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

bool ConfigFields::Has(const std::string& field) const { return Find(field) != nullptr; }

void ConfigFields::Refuse(const std::string& field, const std::string& why,
                          const std::string& next_step) const {
  const nlohmann::json* value = Find(field);
  throw Error(ExitCode::kBadRequest,
              fmt::format("{}: {} {}: {}", name_, field, value ? "is " + Shown(*value) : "is missing", why),
              next_step);
}

int ConfigFields::Int(const std::string& field) const {
  const nlohmann::json* value = Find(field);
  if (!value || !IsToken(*value) || value->get<int64_t>() == 0) Refuse(field, "must be a positive integer");
  return value->get<int>();
}

int ConfigFields::Int(const std::string& field, int otherwise) const {
  return Has(field) ? Int(field) : otherwise;
}

double ConfigFields::Number(const std::string& field) const {
  const nlohmann::json* value = Find(field);
  if (!value || !value->is_number() || !std::isfinite(value->get<double>()))
    Refuse(field, "must be a number");
  return value->get<double>();
}

double ConfigFields::Number(const std::string& field, double otherwise) const {
  return Has(field) ? Number(field) : otherwise;
}

bool ConfigFields::Bool(const std::string& field, bool otherwise) const {
  const nlohmann::json* value = Find(field);
  if (!value) return otherwise;
  if (!value->is_boolean()) Refuse(field, "must be true or false");
  return value->get<bool>();
}

std::string ConfigFields::Text(const std::string& field, const std::string& otherwise) const {
  const nlohmann::json* value = Find(field);
  if (!value) return otherwise;
  if (!value->is_string()) Refuse(field, "must be a text");
  return value->get<std::string>();
}

std::vector<int32_t> ConfigFields::Ints(const std::string& field) const {
  const nlohmann::json* value = Find(field);
  if (!value) return {};
  const nlohmann::json list = value->is_array() ? *value : nlohmann::json::array({*value});
  std::vector<int32_t> numbers;
  for (const nlohmann::json& element : list) {
    if (!IsToken(element)) Refuse(field, "must be an integer from 0 on, or a list of them");
    numbers.push_back(element.get<int32_t>());
  }
  return numbers;
}

std::vector<std::string> ConfigFields::Texts(const std::string& field) const {
  const nlohmann::json* value = Find(field);
  if (!value) return {};
  std::vector<std::string> texts;
  for (const nlohmann::json& element : *value) {
    if (!value->is_array() || !element.is_string()) Refuse(field, "must be a list of texts");
    texts.push_back(element.get<std::string>());
  }
  return texts;
}

ConfigFields ConfigFields::Object(const std::string& field) const {
  const nlohmann::json* value = Find(field);
  if (!value || !value->is_object()) Refuse(field, "must be an object");
  return {*value, name_ + ", " + field};
}

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
