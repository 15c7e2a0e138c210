#pragma once
// The small operations between matrix products. Differentiable; on a GPU by kernels of our own where they
// serve (gpu_rows.h); in inference mode on a CPU in floats as plain loops (cpu_rows.h), since there each
// torch operator costs as much as the work itself. Merely switching gradients off changes no bit of the
// results.

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace kevin::local {

// Inference mode, CPU, floats: the plain loops serve.
bool IsPlainCpu(const at::Tensor& x);

// Over the last dimension.
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

struct SumAndNorm {
  at::Tensor sum, normed;
};
// x + y, and its norm; may change x in inference mode.
SumAndNorm AddAndNorm(const at::Tensor& x, const at::Tensor& y, const at::Tensor& weight, double epsilon);

struct Heads {
  at::Tensor q, k, v;  // [T, heads, head_dim]; may be views of what they were made from
};
// Of a fresh projection [T, heads + 2 kv_heads, head_dim]: queries and keys normalised per head where norms
// are defined, then turned by cos and sin (float [T, head_dim / 2]). May change the projection in inference
// mode.
Heads PrepareHeads(const at::Tensor& qkv, int64_t kv_heads, const at::Tensor& q_norm,
                   const at::Tensor& k_norm, double epsilon, const at::Tensor& cos, const at::Tensor& sin);

// silu(first half of the columns) * second half. Keeps only its input for the backward pass.
at::Tensor Swiglu(const at::Tensor& gate_up);

// x + y; may change x in inference mode.
at::Tensor Add(const at::Tensor& x, const at::Tensor& y);

// A function that keeps only its input for the backward pass, and runs again there.

// run(x), differentiable in x and in `leaves`: all tensors with gradients that `run` uses besides x. `run`
// must do the same both times, and lives until the backward pass is over.
at::Tensor Checkpointed(const at::Tensor& x, const std::vector<at::Tensor>& leaves,
                        std::function<at::Tensor(const at::Tensor&)> run);

}  // namespace kevin::local
