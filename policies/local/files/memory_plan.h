#pragma once
// What a model will need before it is loaded: weights, cache, scratch; and what of it fits.

#include <cstdint>
#include <string>

#include "policies/local/files/model_config.h"

namespace kevin::local {

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
