#pragma once
// START HERE for the network: a language model of the Qwen2, Qwen3 (dense and sparse) or Llama 3 family.
// Sampling and training use the same code. Weights are loaded from a Hugging Face folder and saved as one.
//
// One thread at a time. Invalid input throws Error(kBadRequest), a failure of torch (out of memory, a failed
// device) Error(kBroken).

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "policies/local/model/weights.h"

namespace kevin::local {

struct ModelOptions {
  NumberType dtype = NumberType::kBF16;  // of computation: kF32, kBF16 or kF16
  at::Device device = at::kCPU;          // a CUDA device is opened for the process (device.h)
  Quantization quantization = Quantization::kNone;
  // Parameters require gradients. Training all weights requires that they are not quantised.
  bool trainable = false;
  // Hidden() keeps only the input of each layer and runs the layer again in the backward pass.
  bool checkpoint_layers = false;
  int rope_tokens = 0;  // length of the rope tables; 0: the config's context
};

// Sequences laid end to end; each has its own positions.
struct PackedTokens {
  at::Tensor ids, positions;    // int64 [T], on the model's device
  std::vector<int64_t> starts;  // n + 1 offsets of the n sequences: 0, ..., T
};

struct NamedParameter {
  std::string name;  // as in the checkpoint, or as PEFT names an adapter's
  at::Tensor value;  // a leaf: .grad() after backward; may be changed in place between steps
};

struct AdapterOptions {
  int rank = 32;
  double alpha = 64;  // outputs are scaled by alpha / rank
  // Of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj.
  std::vector<std::string> targets = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                      "gate_proj", "up_proj", "down_proj"};
  NumberType dtype = NumberType::kF32;  // of A and B
};

// Attention of one layer: queries [T, heads, head_dim], keys and values [T, kv_heads, head_dim], all rotated
// already, to [T, heads * head_dim].
using Attend =
    std::function<at::Tensor(int layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v)>;

// For weights of which only a part is there (train/sharded_weights.h): `begin` before a layer runs, in a forward or a
// backward pass, `end` after it; `take` gets the gradients of LayerParameters(layer).
struct LayerHooks {
  std::function<void(int layer, bool backward)> begin;
  std::function<void(int layer)> end;
  std::function<void(int layer, const std::vector<at::Tensor>& gradients)> take;
};

class LanguageModel {
 public:
  // From weights laid out by build_weights.h. LoadLanguageModel and MakeRandomLanguageModel below do both.
  LanguageModel(ModelConfig config, ModelOptions options, Weights weights);

  const ModelConfig& Config() const { return config_; }
  const ModelOptions& Options() const { return options_; }

  // [T, hidden] after the last norm; differentiable if gradients are on. Attention is causal and stays inside
  // each sequence. Results are equal to the bit with gradients on and off.
  at::Tensor Hidden(const PackedTokens& tokens);
  // The same with the caller's attention (the runner's, over its cache); never checkpointed.
  at::Tensor Hidden(const at::Tensor& ids, const at::Tensor& positions, const Attend& attend);
  // [n, vocabulary] for rows of Hidden(), in the compute type.
  at::Tensor Logits(const at::Tensor& hidden) const;

  // The trained parameters in network order: all weights, or only the adapters once they are attached; empty
  // if the model was not made trainable. An expert layer's are two stacked tensors,
  // mlp.experts.gate_up_proj and mlp.experts.down_proj; their adapters are stacked over the experts,
  // mlp.experts.gate_proj.lora_A.weight and so on. Files name each expert (experts.3.gate_proj).
  std::vector<NamedParameter> Parameters() const;

  std::vector<NamedParameter> LayerParameters(int layer) const;  // those of Parameters() in a layer
  // For Hidden() of packed tokens. Empty functions: none.
  void SetLayerHooks(LayerHooks hooks) { hooks_ = std::move(hooks); }

  // For weights of which this process has a slice (train/split_model.h): adds up the outputs of o_proj and down_proj,
  // [T, hidden], over all slices, in place. Empty: the weights are whole.
  void SetPartialSum(std::function<void(at::Tensor*)> sum) { partial_sum_ = std::move(sum); }

  const Weights& GetWeights() const { return weights_; }

  // LoRA: A uniform by Kaiming, B zero, so that outputs do not change at first. Projections of experts have adapters of
  // their own for each expert. The weights no longer require gradients.
  void AttachAdapters(const AdapterOptions& options, uint64_t seed);
  void LoadAdapters(const std::filesystem::path& adapter_folder);  // PEFT's format
  // `base`: the model that adapter_config.json names.
  void SaveAdapters(const std::filesystem::path& adapter_folder, const std::string& base) const;
  // Adds the adapters to the weights and detaches them. Throws Error(kBadRequest) where these are quantised.
  void MergeAdapters();
  // Weights for kernels without adapter support: with adapters attached, new copies with the adapters added,
  // in the compute type; otherwise the tensors of GetWeights().
  Weights MergedWeights() const;

  // Saves a folder that transformers and vLLM load; it appears complete or not at all. Copies tokenizer,
  // template and configs from `files_from` unless empty; writes config.json if that has none. Adapters are
  // merged into the weights.
  void Save(const std::filesystem::path& folder, const std::filesystem::path& files_from) const;

 private:
  friend class WithoutAdapters;

  at::Tensor Whole(at::Tensor partial) const;
  at::Tensor RunLayer(int layer, const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                      const Attend& attend) const;
  enum class Keep { kAll, kInputs, kHooks };  // for the backward pass
  at::Tensor Run(const at::Tensor& ids, const at::Tensor& positions, const Attend& attend, Keep keep) const;

  ModelConfig config_;
  ModelOptions options_;
  Weights weights_;
  AdapterOptions adapters_;
  bool has_adapters_ = false;
  LayerHooks hooks_;
  std::function<void(at::Tensor*)> partial_sum_;
};

// While it lives, the model computes without its adapters: what it was before they were trained. One at a time.
class WithoutAdapters {
 public:
  explicit WithoutAdapters(LanguageModel& model);
  ~WithoutAdapters();
  WithoutAdapters(const WithoutAdapters&) = delete;
  WithoutAdapters& operator=(const WithoutAdapters&) = delete;

 private:
  LanguageModel& model_;
  std::vector<double> scales_;
};

std::unique_ptr<LanguageModel> LoadLanguageModel(const std::filesystem::path& folder,
                                                 const ModelOptions& options);
// Random weights as for training from scratch (normal, deviation 0.02); equal for equal seed and device.
std::unique_ptr<LanguageModel> MakeRandomLanguageModel(const ModelConfig& config, const ModelOptions& options,
                                                       uint64_t seed);

at::ScalarType TorchType(NumberType type);

}  // namespace kevin::local
