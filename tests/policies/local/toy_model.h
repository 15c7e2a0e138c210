#pragma once
// The smallest language model that looks back: what follows a token depends on it and on the mean of all
// before it in its own sequence. For tests of training, which need no real network.

#include <ATen/ATen.h>

#include <fstream>

#include "policies/local/model/language_model.h"

namespace kevin::local {

class ToyModel : public LanguageModel {
 public:
  ToyModel(int vocabulary, int width, uint64_t seed, at::ScalarType type = at::kFloat) {
    config_.vocabulary = vocabulary, config_.hidden = width, config_.layers = 1, config_.heads = 1;
    config_.kv_heads = 1, config_.head_dim = width, config_.ffn = width;
    at::manual_seed(seed);
    const auto make = [&](std::vector<int64_t> shape, double scale) {
      return (at::randn(shape) * scale).to(type).requires_grad_(true);
    };
    parameters_ = {{"embedding", make({vocabulary, width}, 0.5)},
                   {"mix", make({width, width}, 0.5)},
                   {"bias", make({width}, 0.1)},
                   {"head", make({vocabulary, width}, 0.5)}};
  }

  const ModelConfig& Config() const override { return config_; }
  const ModelOptions& Options() const override { return options_; }

  at::Tensor Hidden(const PackedTokens& tokens) override {
    const at::Tensor embedded = parameters_[0].value.index_select(0, tokens.ids);
    std::vector<at::Tensor> means;
    for (size_t i = 0; i + 1 < tokens.starts.size(); ++i) {
      const at::Tensor own = embedded.narrow(0, tokens.starts[i], tokens.starts[i + 1] - tokens.starts[i]);
      const at::Tensor counts = at::arange(1, own.size(0) + 1, own.options()).unsqueeze(1);
      means.push_back(own.cumsum(0) / counts);
    }
    return (embedded + at::linear(at::cat(means), parameters_[1].value, parameters_[2].value)).tanh();
  }
  at::Tensor Hidden(const at::Tensor&, const at::Tensor&, const Attend&) override { return {}; }
  at::Tensor Logits(const at::Tensor& hidden) override { return at::linear(hidden, parameters_[3].value); }
  std::vector<NamedParameter> Parameters() override { return parameters_; }

  const Weights& GetWeights() const override { return weights_; }
  void AttachAdapters(const AdapterOptions&, uint64_t) override {}
  void LoadAdapters(const std::filesystem::path&) override {}
  void SaveAdapters(const std::filesystem::path&) const override {}
  void MergeAdapters() override {}
  Weights MergedWeights() const override { return {}; }
  void Save(const std::filesystem::path& folder, const std::filesystem::path&) const override {
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "saved") << "here";
  }

 private:
  ModelConfig config_;
  ModelOptions options_;
  Weights weights_;
  std::vector<NamedParameter> parameters_;
};

}  // namespace kevin::local
