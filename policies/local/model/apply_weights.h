#pragma once
// The matrix products of the network: linear layers and mixtures of experts, for dense and quantised weights,
// with and without adapters. Differentiable in x, in the projections' leaves and in the adapters.

#include <ATen/core/Tensor.h>

#include "policies/local/files/model_config.h"
#include "policies/local/model/weights.h"

namespace kevin::local {

// y = x weight^T + bias.
at::Tensor Apply(const Linear& linear, const at::Tensor& x);

// x [rows, in] times the transpose of a quantised matrix. The backward pass dequantises again, so that no
// dense matrix is kept in between.
at::Tensor ApplyQuantized(const QuantizedMatrix& matrix, const at::Tensor& x);

// The rows of scale * B A that belong to a projection, in float; [rows, in].
at::Tensor AdapterProduct(const Projection& projection, double scale);

// A mixture of experts: the router chooses a few experts for each token; their outputs are added with the
// router's weights. x [T, hidden] -> [T, hidden]. On CUDA in bf16 all experts run as one grouped product,
// elsewhere one by one.
at::Tensor ApplyExperts(const Experts& experts, const ModelConfig& config, const at::Tensor& x);

}  // namespace kevin::local
