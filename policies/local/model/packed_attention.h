#pragma once
// Attention inside sequences laid end to end, each token over itself and what is before it in its sequence.

#include <ATen/core/Tensor.h>

#include <vector>

namespace kevin::local {

// Queries that are the last tokens of longer sequences of keys: sequence i has queries query_starts[i]..,
// keys key_starts[i].. . Made once for all layers: copying the starts to a device waits for what that is
// doing.
struct RaggedRows {
  RaggedRows(std::vector<int64_t> of_queries, std::vector<int64_t> of_keys, at::Device device);
  std::vector<int64_t> query_starts, key_starts;  // n + 1 offsets of n sequences
  at::Tensor query_offsets, key_offsets;          // the same as int32 on a CUDA device, else undefined
};
// Every query a key, too.
RaggedRows PackedRows(const std::vector<int64_t>& starts, at::Device device);

// q [T, heads, d], k and v [T', kv_heads, d]. Returns [T, heads * d]; differentiable. Flash attention on CUDA
// in 16 bits, else one sequence after the other.
at::Tensor AttendRagged(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const RaggedRows& rows);

// One long sequence from its beginning on, in inference: cuDNN's attention, which takes half of flash's time,
// where it is there. Lengths are rounded up, since it makes a plan for each; undefined where it cannot serve.
at::Tensor AttendLongSequence(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

}  // namespace kevin::local
