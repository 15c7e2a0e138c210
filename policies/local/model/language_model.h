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
  at::Device device = at::kCPU;          // a CUDA device: OpenCuda (cuda.h) is called for it
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
  virtual ~LanguageModel() = default;
  virtual const ModelConfig& Config() const = 0;
  virtual const ModelOptions& Options() const = 0;

  // [T, hidden] after the last norm; differentiable where gradients are on. Attention stays inside each
  // sequence and looks back only.
  virtual at::Tensor Hidden(const PackedTokens& tokens) = 0;
  // The same with somebody else's attention (the runner's, over its cache); never checkpointed.
  virtual at::Tensor Hidden(const at::Tensor& ids, const at::Tensor& positions, const Attend& attend) = 0;
  // [n, vocabulary] of rows of Hidden, in the compute type.
  virtual at::Tensor Logits(const at::Tensor& hidden) = 0;

  // What is trained, in the order of the network: everything, or the adapters alone once they are attached.
  // An expert layer's are two stacked tensors, mlp.experts.gate_up_proj and mlp.experts.down_proj.
  virtual std::vector<NamedParameter> Parameters() = 0;

  virtual const Weights& GetWeights() const = 0;

  // LoRA beside the projections (experts excepted): A uniform as Kaiming has it, B zero, so that nothing
  // changes at first. The weights no longer require gradients.
  virtual void AttachAdapters(const AdapterOptions& options, uint64_t seed) = 0;
  virtual void LoadAdapters(const std::filesystem::path& adapter_folder) = 0;  // PEFT's format
  virtual void SaveAdapters(const std::filesystem::path& adapter_folder) const = 0;
  // Adds the adapters to the weights and detaches them. Throws Error(kBadRequest) where these are quantised.
  virtual void MergeAdapters() = 0;
  // Weights for kernels that know no adapters: where some are attached, copies with the adapters added (made
  // anew by each call, in the compute type); else GetWeights()'s own tensors.
  virtual Weights MergedWeights() const = 0;

  // A folder that transformers and vLLM load; appears whole or not at all. Tokenizer, template and configs
  // are copied from `files_from` if that is not empty; config.json is written where there is none.
  virtual void Save(const std::filesystem::path& folder, const std::filesystem::path& files_from) const = 0;
};

std::unique_ptr<LanguageModel> LoadLanguageModel(const std::filesystem::path& folder,
                                                 const ModelOptions& options);
// Weights drawn as for training from nothing (normal, deviation 0.02); the same for the same seed and device.
std::unique_ptr<LanguageModel> MakeRandomLanguageModel(const ModelConfig& config, const ModelOptions& options,
                                                       uint64_t seed);

at::ScalarType TorchType(NumberType type);

}  // namespace kevin::local
