#pragma once
// START HERE for the network: a language model of the Qwen2, Qwen3 (dense and sparse) or Llama 3 family that
// samples and trains by the same code. Weights come from a Hugging Face folder and go back into one.
//
// Not safe for several threads at once: one thread samples, then trains. Errors in what the person gave are
// Error(kBadRequest); torch's own failures (out of memory, a dead device) leave as Error(kBroken).

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
  NumberType dtype = NumberType::kBF16;  // computes in it: kF32, kBF16 or kF16
  at::Device device = at::kCPU;          // a CUDA device is opened for the process (cuda.h)
  Quantization quantization = Quantization::kNone;
  // Parameters require gradients. Full training needs weights that are not quantised.
  bool trainable = false;
  // Hidden keeps only each layer's input for the backward pass and runs the layer again there.
  bool checkpoint_layers = false;
  int rope_tokens = 0;  // length of the rope tables; 0: the config's context
};

// Sequences laid end to end, each beginning at its own position 0 or elsewhere.
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

// Attention of one layer over queries [T, heads, head_dim], keys and values [T, kv_heads, head_dim], turned
// already; returns [T, heads * head_dim].
using Attend =
    std::function<at::Tensor(int layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v)>;

class LanguageModel {
 public:
  // Of weights laid out by build_weights.h; the functions below are the usual way to one.
  LanguageModel(ModelConfig config, ModelOptions options, Weights weights);

  const ModelConfig& Config() const { return config_; }
  const ModelOptions& Options() const { return options_; }

  // [T, hidden] after the last norm; differentiable where gradients are on. Attention stays inside each
  // sequence and looks back only. The same bits whether gradients are on or not.
  at::Tensor Hidden(const PackedTokens& tokens);
  // The same with somebody else's attention (the runner's, over its cache); never checkpointed.
  at::Tensor Hidden(const at::Tensor& ids, const at::Tensor& positions, const Attend& attend);
  // [n, vocabulary] of rows of Hidden, in the compute type.
  at::Tensor Logits(const at::Tensor& hidden) const;

  // What is trained, in the order of the network: everything, or the adapters alone once they are attached;
  // empty if the model was not made trainable. An expert layer's are two stacked tensors,
  // mlp.experts.gate_up_proj and mlp.experts.down_proj.
  std::vector<NamedParameter> Parameters() const;

  const Weights& GetWeights() const { return weights_; }

  // LoRA beside the projections (experts excepted): A uniform as Kaiming has it, B zero, so that nothing
  // changes at first. The weights no longer require gradients.
  void AttachAdapters(const AdapterOptions& options, uint64_t seed);
  void LoadAdapters(const std::filesystem::path& adapter_folder);  // PEFT's format
  // `base` is what adapter_config.json names as the model they belong to.
  void SaveAdapters(const std::filesystem::path& adapter_folder, const std::string& base) const;
  // Adds the adapters to the weights and detaches them. Throws Error(kBadRequest) where these are quantised.
  void MergeAdapters();
  // Weights for kernels that know no adapters: where some are attached, copies with the adapters added (made
  // anew by each call, in the compute type); else GetWeights()'s own tensors.
  Weights MergedWeights() const;

  // A folder that transformers and vLLM load; appears whole or not at all. Tokenizer, template and configs
  // are copied from `files_from` if that is not empty; config.json is written where there is none. Adapters
  // are merged into what is saved.
  void Save(const std::filesystem::path& folder, const std::filesystem::path& files_from) const;

 private:
  at::Tensor RunLayer(int layer, const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                      const Attend& attend) const;
  at::Tensor Run(const at::Tensor& ids, const at::Tensor& positions, const Attend& attend,
                 bool checkpoint) const;

  ModelConfig config_;
  ModelOptions options_;
  Weights weights_;
  AdapterOptions adapters_;
  bool has_adapters_ = false;
};

std::unique_ptr<LanguageModel> LoadLanguageModel(const std::filesystem::path& folder,
                                                 const ModelOptions& options);
// Weights drawn as for training from nothing (normal, deviation 0.02); the same for the same seed and device.
std::unique_ptr<LanguageModel> MakeRandomLanguageModel(const ModelConfig& config, const ModelOptions& options,
                                                       uint64_t seed);

at::ScalarType TorchType(NumberType type);

}  // namespace kevin::local
