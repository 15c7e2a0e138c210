#pragma once
// A network of two layers, small enough for tests to train it in milliseconds; and a folder for what they write.

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>

#include "policies/local/model/language_model.h"

namespace kevin::local {

// A folder in the place for temporary files, removed at the end.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "kevin-train-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string Path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

inline ModelConfig TinyConfig(int vocabulary = 13, int width = 8) {
  ModelConfig config;
  config.family = ModelFamily::kQwen2;
  config.hidden = width, config.layers = 2, config.heads = 2, config.kv_heads = 1,
  config.head_dim = width / 2;
  config.ffn = 2 * width, config.vocabulary = vocabulary, config.context = 64;
  config.qkv_bias = true;
  config.dtype = NumberType::kF32;
  return config;
}

// Weights ten times as large as usual, so that such a small network says something.
inline std::unique_ptr<LanguageModel> TinyModel(uint64_t seed, NumberType type = NumberType::kF32,
                                                const ModelConfig& config = TinyConfig()) {
  ModelOptions options;
  options.dtype = type, options.trainable = true;
  auto model = MakeRandomLanguageModel(config, options, seed);
  const c10::NoGradGuard no_gradients;
  for (NamedParameter& p : model->Parameters()) {
    if (p.value.dim() > 1) p.value.mul_(10);
  }
  return model;
}

}  // namespace kevin::local
