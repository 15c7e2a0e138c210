#pragma once
// The small operations between matrix products on a GPU, each in one pass over memory by a kernel of our own
// (kernels/rows.cu), where torch's operators take several. Compiled by NVRTC at their first use in a process,
// for each type and device; where there is no NVRTC, or for shapes that they are not made for, primitives.h
// falls back to torch's. They know nothing of gradients; from any thread, on torch's default stream.

#include <ATen/core/Tensor.h>

#include <array>

namespace kevin::local {

// Whether the functions below take x: on a GPU, float, bfloat16 or half, contiguous rows that are a multiple
// of 8 numbers long.
bool HasGpuRows(const at::Tensor& x);
// The longest rows that the norms take.
constexpr int64_t kMostNormColumns = 8192;

struct NormedRows {
  at::Tensor sum;     // x + added, rounded; x itself where nothing was added
  at::Tensor normed;  // of the sum
  at::Tensor scale;   // float [rows]: what the rows were multiplied by
};
// Root mean square norm over the last dimension; `added` may be undefined.
NormedRows GpuAddNorm(const at::Tensor& x, const at::Tensor& added, const at::Tensor& weight, double epsilon);

struct NormGradients {
  at::Tensor x, weight;  // the weight's undefined unless asked for
};
// `of_sum` may be undefined.
NormGradients GpuNormBackward(const at::Tensor& of_normed, const at::Tensor& of_sum, const NormedRows& rows,
                              const at::Tensor& weight, bool with_weight);

// silu(gate) * up of rows [gate, up].
at::Tensor GpuGate(const at::Tensor& gate_up);
at::Tensor GpuGateBackward(const at::Tensor& of_out, const at::Tensor& gate_up);

// Queries, keys and values [T, .., dim] as up to three tensors whose heads lie side by side; undefined ones
// have no heads. The last two dimensions are contiguous.
using HeadTensors = std::array<at::Tensor, 3>;
// Queries and keys turned by cos and sin (float [T, dim / 2]; `sign` -1 turns back), values copied; `to` may
// be `from`.
void GpuTurn(const HeadTensors& from, const HeadTensors& to, const at::Tensor& cos, const at::Tensor& sin,
             float sign);

struct RowLogprobs {
  at::Tensor logprobs, normalisers, entropies;  // float [rows]; entropies undefined unless asked for
};
// Of the targets (int64 [rows]) under softmax(logits / temperature).
RowLogprobs GpuLogprobs(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& temperatures,
                        bool with_entropy);
// Puts the gradient with respect to the logits in their place. `of_entropies` is undefined where entropies
// are.
void GpuLogprobsBackward(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& temperatures,
                         const RowLogprobs& forward, const at::Tensor& of_logprobs,
                         const at::Tensor& of_entropies);

// kernels/rows.cu, built into the program.

extern const char* const kRowsKernels;

}  // namespace kevin::local
