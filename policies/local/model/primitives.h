#pragma once
// The small operations between matrix products. Differentiable; but in inference mode on a CPU in floats they
// are plain loops (cpu_rows.h), since there each torch operator costs as much as the work itself. Merely
// switching gradients off changes no bit of the results.

#include <ATen/core/Tensor.h>

namespace kevin::local {

// Inference mode, CPU, floats: the plain loops serve.
bool IsPlainCpu(const at::Tensor& x);

// Over the last dimension.
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

// Queries or keys [T, heads, head_dim] of a fresh projection: normalised per head where `norm` is defined,
// then turned by cos and sin (float [T, head_dim / 2]). May change x and return it.
at::Tensor PrepareHeads(const at::Tensor& x, const at::Tensor& norm, double epsilon, const at::Tensor& cos,
                        const at::Tensor& sin);

// silu(first half of the columns) * second half. Keeps only its input for the backward pass.
at::Tensor Swiglu(const at::Tensor& gate_up);

// x + y; may change x in inference mode.
at::Tensor Add(const at::Tensor& x, const at::Tensor& y);

}  // namespace kevin::local
