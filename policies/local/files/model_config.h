#pragma once
// What a model's folder says about the model: config.json and generation_config.json, read into one struct.
// Both spellings of these files are understood: that of transformers 4 (rope_theta, rope_scaling,
// torch_dtype) and that of transformers 5 (rope_parameters, dtype). What we cannot compute is refused, never
// ignored.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace kevin::local {

// Types of numbers in a weight file.
enum class NumberType { kBool, kU8, kI8, kI16, kI32, kI64, kF8E4M3, kF8E5M2, kF16, kBF16, kF32, kF64 };
int BytesOf(NumberType type);
const char* NameOf(NumberType type);  // as safetensors spells it: "BF16"
std::optional<NumberType> NumberTypeNamed(const std::string& name);

enum class ModelFamily { kQwen2, kQwen3, kQwen3Moe, kLlama };

// How positions turn queries and keys.
struct RopeConfig {
  enum class Scaling { kNone, kLinear, kLlama3, kYarn };
  Scaling scaling = Scaling::kNone;
  double theta = 10000;
  double factor = 1;                             // linear, llama3, yarn
  double original_context = 0;                   // llama3, yarn
  double low_frequency_factor = 1;               // llama3
  double high_frequency_factor = 4;              // llama3
  double beta_fast = 32, beta_slow = 1;          // yarn
  bool truncate = true;                          // yarn: whole dimensions only
  std::optional<double> attention_factor;        // yarn, as given
  double mscale = 0, mscale_all_dimensions = 0;  // yarn; 0: not given
};

// What the model was published to be sampled with; unset where the folder does not say.
struct GenerationDefaults {
  std::vector<int32_t> end_tokens;  // each ends a reply
  std::optional<int32_t> begin_token, pad_token;
  std::optional<float> temperature, top_p, min_p;
  std::optional<int> top_k;
  bool sample = false;  // do_sample: else greedy was meant
};

struct ModelConfig {
  ModelFamily family = ModelFamily::kQwen2;
  int hidden = 0;
  int layers = 0;
  int heads = 0;  // of queries
  int kv_heads = 0;
  int head_dim = 0;
  int ffn = 0;  // width of a dense layer's SwiGLU
  int vocabulary = 0;
  int context = 0;  // tokens, after scaling of positions
  double norm_epsilon = 1e-6;
  bool tied_embeddings = false;
  bool qkv_bias = false;  // qwen2
  bool qk_norm = false;   // qwen3: RMSNorm of each head's query and key
  RopeConfig rope;

  // Mixture of experts; experts is 0 in a dense model.
  int experts = 0;
  int experts_per_token = 0;
  int expert_ffn = 0;
  bool normalize_expert_weights = false;
  std::vector<bool> is_sparse;  // of each layer; empty in a dense model

  NumberType dtype = NumberType::kBF16;  // of the weights as stored
  GenerationDefaults generation;

  bool IsSparse(int layer) const { return experts > 0 && is_sparse[static_cast<size_t>(layer)]; }
};

// Throws Error(kBadRequest) that names the file, the field and what is supported.
ModelConfig ReadModelConfig(const std::filesystem::path& model_folder);
// The two texts, for tests and for other places they come from; `name` is the first one's in messages. An
// empty generation text: there is none.
ModelConfig ParseModelConfig(const std::string& config_json, const std::string& generation_json,
                             const std::string& name);
// The text of a config.json that gives this config back (transformers 4 and 5 read it).
std::string ConfigJson(const ModelConfig& config);
std::string GenerationConfigJson(const ModelConfig& config);

// What turning by positions needs: angle of pair i at position p is p * frequencies[i]; cosines and sines are
// multiplied by `attention_factor`.
struct RopeFrequencies {
  std::vector<float> frequencies;  // head_dim / 2
  float attention_factor = 1;
};
RopeFrequencies FrequenciesOf(const ModelConfig& config);

// Typed access to the fields of a configuration file, with errors that name file, field and value.

class ConfigFields {
 public:
  // `json` must be an object (throws Error(kBadRequest)); `name` is the file's in messages.
  ConfigFields(nlohmann::json json, std::string name);
  static ConfigFields Parse(const std::string& text, const std::string& name);

  bool Has(const std::string& field) const;  // and it is not null
  int Int(const std::string& field) const;   // positive, at most 2^31 - 1
  int Int(const std::string& field, int otherwise) const;
  double Number(const std::string& field) const;
  double Number(const std::string& field, double otherwise) const;
  bool Bool(const std::string& field, bool otherwise) const;
  std::string Text(const std::string& field, const std::string& otherwise) const;
  std::vector<int32_t> Ints(const std::string& field) const;  // a list, or one number; absent: empty
  std::vector<std::string> Texts(const std::string& field) const;
  ConfigFields Object(const std::string& field) const;

  [[noreturn]] void Refuse(const std::string& field, const std::string& why,
                           const std::string& next_step = "") const;

 private:
  const nlohmann::json* Find(const std::string& field) const;
  nlohmann::json json_;
  std::string name_;
};

// Files of a model folder, which need not be trusted.

// The whole file. Throws Error(kBadRequest) where it is no file, cannot be read or has more than
// `most_bytes`.
std::string ReadModelFile(const std::filesystem::path& file, size_t most_bytes);

// Likewise; also where it is no JSON, with the line.
nlohmann::json ReadModelJson(const std::filesystem::path& file, size_t most_bytes);

}  // namespace kevin::local
