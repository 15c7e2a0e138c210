#pragma once
// Which tensors a model of a given config has, by the names of its Hugging Face checkpoint: the one list that
// loading, saving, counting and checking go by.

#include <cstdint>
#include <string>
#include <vector>

#include "policies/local/files/model_config.h"
#include "policies/local/files/safetensors.h"

namespace kevin::local {

struct ExpectedTensor {
  enum class Role { kEmbedding, kProjection, kBias, kNorm, kRouter, kHead };
  std::string name;
  std::vector<int64_t> shape;
  Role role = Role::kProjection;  // quantisation concerns kProjection only
  bool is_expert = false;
  int64_t Count() const;  // numbers in it
};

// In the order of the network. The head is absent where it is tied to the embedding.
std::vector<ExpectedTensor> ExpectedTensors(const ModelConfig& config);

// Throws Error(kBadRequest) unless the checkpoint has exactly these tensors, in these shapes, of floating
// types. A head beside a tied embedding and stored rotary tables are passed over, as transformers does.
void CheckTensors(const Checkpoint& checkpoint, const ModelConfig& config);

// What a model will need before it is loaded: weights, cache, scratch; and what of it fits.

enum class Quantization { kNone, kInt8, kNf4, kNf4Double };
const char* NameOf(Quantization quantization);  // "none", "int8", "nf4", "nf4-double"

struct MemoryRequest {
  NumberType dtype = NumberType::kBF16;  // the model computes in it; weights and cache are kept in it
  Quantization quantization = Quantization::kNone;
  int64_t device_bytes = 0;  // free for us
  int step_tokens = 2048;    // the most in one step
  int step_sequences = 64;   // rows of logits
  int page_tokens = 32;
  int context_tokens = 0;  // of one sequence; 0: the model's
};

struct MemoryPlan {
  int64_t parameters = 0;
  int64_t weight_bytes = 0;
  int64_t cache_bytes_per_token = 0;
  int64_t activation_bytes = 0;  // of the largest step
  int64_t pages = 0;             // that fit beside weights and activations
  int64_t cache_tokens = 0;      // pages * page_tokens
  bool fits = false;             // the weights and one sequence of context_tokens
  int64_t context_tokens = 0;    // asked for, or what fits if that is less
  std::string message;           // for a person: what is needed, what fits, and what to do if it does not
};

MemoryPlan PlanMemory(const ModelConfig& config, const MemoryRequest& request);

}  // namespace kevin::local
