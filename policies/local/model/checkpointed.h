#pragma once
// A function that keeps only its input for the backward pass, and runs again there.

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace kevin::local {

// run(x), differentiable in x and in `leaves`: all tensors with gradients that `run` uses besides x. `run`
// must do the same both times, and lives until the backward pass is over.
at::Tensor Checkpointed(const at::Tensor& x, const std::vector<at::Tensor>& leaves,
                        std::function<at::Tensor(const at::Tensor&)> run);

}  // namespace kevin::local
