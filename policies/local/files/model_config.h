#pragma once
// The configuration of a model: config.json and generation_config.json of its folder, read into one struct
// and written back. Both formats of these files are accepted: transformers 4 (rope_theta, rope_scaling,
// torch_dtype) and transformers 5 (rope_parameters, dtype). A feature that cannot be computed is an error; it
// is never ignored.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace kevin::local {

// Number types of weight files.
enum class NumberType { kBool, kU8, kI8, kI16, kI32, kI64, kF8E4M3, kF8E5M2, kF16, kBF16, kF32, kF64 };
int BytesOf(NumberType type);
const char* NameOf(NumberType type);  // as safetensors spells it: "BF16"
std::optional<NumberType> NumberTypeNamed(const std::string& name);

enum class ModelFamily { kQwen2, kQwen3, kQwen3Moe, kLlama };

// Rotary position embedding: how queries and keys are rotated by their position.
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

// The sampling settings the model was published with; unset where the folder has none.
struct GenerationDefaults {
  std::vector<int32_t> end_tokens;  // each of them ends a reply
  std::optional<int32_t> begin_token, pad_token;
  std::optional<float> temperature, top_p, min_p;
  std::optional<int> top_k;
  bool sample = false;  // do_sample; false: greedy decoding
};

struct ModelConfig {
  ModelFamily family = ModelFamily::kQwen2;
  int hidden = 0;
  int layers = 0;
  int heads = 0;  // of queries
  int kv_heads = 0;
  int head_dim = 0;
  int ffn = 0;  // width of the SwiGLU of a dense layer
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

// Throws Error(kBadRequest) that names the file, the field and the supported values.
ModelConfig ReadModelConfig(const std::filesystem::path& model_folder);
// The same from the texts of the two files. `name` stands for config.json in messages; an empty
// `generation_json` means that there is no such file.
ModelConfig ParseModelConfig(const std::string& config_json, const std::string& generation_json,
                             const std::string& name);
// The text of a config.json that reads back as `config`; transformers 4 and 5 accept it.
std::string ConfigJson(const ModelConfig& config);
std::string GenerationConfigJson(const ModelConfig& config);

// Rotation angles: pair i at position p is rotated by p * frequencies[i]; cosines and sines are multiplied by
// `attention_factor`.
struct RopeFrequencies {
  std::vector<float> frequencies;  // head_dim / 2
  float attention_factor = 1;
};
RopeFrequencies FrequenciesOf(const ModelConfig& config);

// Typed access to the fields of a configuration file. Errors name the file, the field and the value.
class ConfigFields {
 public:
  // Throws Error(kBadRequest) unless `json` is an object. `name`: of the file, for messages.
  ConfigFields(nlohmann::json json, std::string name);
  static ConfigFields Parse(const std::string& text, const std::string& name);

  bool Has(const std::string& field) const;  // present and not null
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

// Reads a whole file of a model folder. Throws Error(kBadRequest) for a path that is no file, cannot be read,
// or holds more than `most_bytes` bytes: folders are downloaded and not trusted.
std::string ReadModelFile(const std::filesystem::path& file, size_t most_bytes);

// The same, parsed. Throws also for invalid JSON, with the line.
nlohmann::json ReadModelJson(const std::filesystem::path& file, size_t most_bytes);

}  // namespace kevin::local
