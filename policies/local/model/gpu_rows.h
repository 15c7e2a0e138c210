#pragma once
// The small operations between matrix products on a GPU, each in one pass over memory by a kernel of our own
// (kernels/rows.cu), where torch's operators take several. NVRTC compiles them at first use, for each type
// and device. Without NVRTC, and for unsupported shapes, primitives.h uses torch. No gradients; any thread;
// torch's current stream.

#include <ATen/core/Tensor.h>

#include <array>

namespace kevin::local {

// Whether the functions below accept x: on a GPU, float, bfloat16 or half, contiguous rows whose length is a
// multiple of 8.
bool HasGpuRows(const at::Tensor& x);
// The longest rows that the norms accept.
constexpr int64_t kMostNormColumns = 8192;

struct NormedRows {
  at::Tensor sum;     // x + added, rounded; x itself if nothing was added
  at::Tensor normed;  // of the sum
  at::Tensor scale;   // float [rows]: the factor of each row
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

// Queries, keys and values [T, .., dim] as up to three tensors; an undefined one has no heads. The last two
// dimensions are contiguous.
using HeadTensors = std::array<at::Tensor, 3>;
// Rotates queries and keys by cos and sin (float [T, dim / 2]; `sign` -1 rotates back) and copies values;
// `to` may be `from`.
void GpuRotate(const HeadTensors& from, const HeadTensors& to, const at::Tensor& cos, const at::Tensor& sin,
               float sign);

struct RowLogprobs {
  at::Tensor logprobs, normalisers, entropies;  // float [rows]; entropies undefined unless asked for
};
// Of the targets (int64 [rows]) under softmax(logits / temperature).
RowLogprobs GpuLogprobs(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& temperatures,
                        bool with_entropy);
// Overwrites the logits with their gradient. `of_entropies` is undefined where the entropies are.
void GpuLogprobsBackward(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& temperatures,
                         const RowLogprobs& forward, const at::Tensor& of_logprobs,
                         const at::Tensor& of_entropies);

// kernels/rows.cu, built into the program.

// The text of kernels/rows.cu, for NVRTC.
extern const char* const kRowsKernels;

}  // namespace kevin::local
