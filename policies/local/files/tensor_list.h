#pragma once
// The tensors of a model with a given config, under the names of its Hugging Face checkpoint (the one list
// that loading, saving, counting and checking use), and the memory they need.

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
  Role role = Role::kProjection;  // only kProjection is quantised
  bool is_expert = false;
  int64_t Count() const;  // of numbers
};

// In network order. Without a head where it is tied to the embedding.
std::vector<ExpectedTensor> ExpectedTensors(const ModelConfig& config);

// Throws Error(kBadRequest) unless the checkpoint has exactly these tensors, in these shapes, of floating
// types. Ignores a head beside a tied embedding and stored rotary tables, as transformers does.
void CheckTensors(const Checkpoint& checkpoint, const ModelConfig& config);

enum class Quantization { kNone, kInt8, kNf4, kNf4Double };
const char* NameOf(Quantization quantization);  // "none", "int8", "nf4", "nf4-double"

// The memory that a model needs once loaded (weights, cache, scratch), and the part of it that fits.
struct MemoryRequest {
  NumberType dtype = NumberType::kBF16;  // of computation, weights and cache
  Quantization quantization = Quantization::kNone;
  int64_t device_bytes = 0;  // available
  int step_tokens = 2048;    // maximum of one step
  int step_sequences = 64;   // rows of logits
  int page_tokens = 32;
  int context_tokens = 0;  // of one sequence; 0: the model's
};

struct MemoryPlan {
  int64_t parameters = 0;
  int64_t weight_bytes = 0;
  int64_t cache_bytes_per_token = 0;
  int64_t activation_bytes = 0;  // of the largest step
  int64_t pages = 0;             // of cache that fit beside weights and activations
  int64_t cache_tokens = 0;      // pages * page_tokens
  bool fits = false;             // weights and one sequence of context_tokens
  int64_t context_tokens = 0;    // as requested, or the smaller number that fits
  std::string message;           // for the user: needed, available, and the next step if it does not fit
};

MemoryPlan PlanMemory(const ModelConfig& config, const MemoryRequest& request);

}  // namespace kevin::local
