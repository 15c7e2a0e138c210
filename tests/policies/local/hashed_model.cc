#include "tests/policies/local/hashed_model.h"

#include <cmath>
#include <fstream>

#include "policies/local/files/tensor_list.h"

namespace kevin::testing {

using namespace local;

std::vector<double> HashedNumbers(const std::string& name, int64_t count) {
  uint64_t state = 14695981039346656037ull;  // FNV-1a of the name
  for (const char letter : name) state = (state ^ static_cast<unsigned char>(letter)) * 1099511628211ull;
  std::vector<double> numbers;
  for (int64_t i = 0; i < count; ++i) {
    uint64_t x = state += 0x9E3779B97F4A7C15ull;  // splitmix64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    x = x ^ (x >> 31);
    numbers.push_back(static_cast<double>(x >> 40) / (1 << 23) - 1);
  }
  return numbers;
}

std::vector<float> HashedTensor(const std::string& name, const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t length : shape) count *= length;
  const bool norm = name.ends_with("norm.weight"), bias = name.ends_with(".bias");
  const double middle = norm ? 1 : 0;
  double scale = norm ? 0.25 : 0.5;
  if (!norm && !bias)
    scale = name == "model.embed_tokens.weight" ? 1.5 : std::sqrt(6.0 / static_cast<double>(shape[1]));
  std::vector<float> values;
  for (const double number : HashedNumbers(name, count))
    values.push_back(static_cast<float>(middle + scale * number));
  return values;
}

void WriteHashedModel(const std::filesystem::path& folder, const std::string& config_json,
                      const WriteOptions& options) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << config_json;
  std::vector<TensorToWrite> tensors;
  std::vector<float> values;
  for (const ExpectedTensor& tensor : ExpectedTensors(ParseModelConfig(config_json, "", "config.json"))) {
    tensors.push_back({tensor.name, NumberType::kF32, tensor.shape, [&values, tensor] {
                         values = HashedTensor(tensor.name, tensor.shape);
                         return std::as_bytes(std::span(values));
                       }});
  }
  WriteTensors(folder, tensors, options);
}

ModelConfig TinyConfig(ModelFamily family) {
  ModelConfig config;
  config.family = family;
  config.hidden = 64;
  config.layers = 3;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.ffn = 112;
  config.vocabulary = 160;
  config.context = 512;
  config.rope.theta = 1e4;
  config.dtype = NumberType::kF32;
  config.qkv_bias = family == ModelFamily::kQwen2;
  config.qk_norm = family == ModelFamily::kQwen3 || family == ModelFamily::kQwen3Moe;
  if (family != ModelFamily::kQwen3Moe) return config;
  config.experts = 8;
  config.experts_per_token = 2;
  config.expert_ffn = 48;
  config.normalize_expert_weights = true;
  config.is_sparse = {true, false, true};
  return config;
}

}  // namespace kevin::testing
