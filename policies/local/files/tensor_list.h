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

}  // namespace kevin::local
