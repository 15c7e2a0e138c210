#pragma once
// y = x weight^T + bias, whatever form the weights have: dense, quantised, with adapters; differentiable in
// x, in the projections' leaves and in the adapters.

#include <ATen/core/Tensor.h>

#include "policies/local/files/model_config.h"
#include "policies/local/model/weights.h"

namespace kevin::local {

at::Tensor Apply(const Linear& linear, const at::Tensor& x);

// x [rows, in] times the transpose of a quantised matrix. Dequantised again for the backward pass, so that
// nothing dense is kept between the two.
at::Tensor ApplyQuantized(const QuantizedMatrix& matrix, const at::Tensor& x);

// The part of scale * B A that belongs to a projection, in float; [rows, in].
at::Tensor AdapterProduct(const Projection& projection, double scale);

// A sparse layer: a router sends each token to its few experts; their outputs are added by its weights.

// x [T, hidden] -> [T, hidden]; differentiable. On CUDA in bf16 all experts are one grouped product,
// elsewhere a product an expert.
at::Tensor ApplyExperts(const Experts& experts, const ModelConfig& config, const at::Tensor& x);

}  // namespace kevin::local
