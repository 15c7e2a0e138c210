#pragma once
// A sparse layer: a router sends each token to its few experts; their outputs are added by its weights.

#include <ATen/core/Tensor.h>

#include "policies/local/files/model_config.h"
#include "policies/local/model/weights.h"

namespace kevin::local {

// x [T, hidden] -> [T, hidden]; differentiable. On CUDA in bf16 all experts are one grouped product,
// elsewhere a product an expert.
at::Tensor ApplyExperts(const Experts& experts, const ModelConfig& config, const at::Tensor& x);

}  // namespace kevin::local
