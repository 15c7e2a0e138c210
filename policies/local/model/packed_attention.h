#pragma once
// Attention inside sequences laid end to end, each token over itself and what is before it in its sequence.

#include <ATen/core/Tensor.h>

#include <vector>

namespace kevin::local {

// q [T, heads, d], k and v [T, kv_heads, d]; `starts` are n + 1 offsets. Returns [T, heads * d];
// differentiable. Flash attention on CUDA in 16 bits, else one sequence after the other.
at::Tensor AttendPacked(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const std::vector<int64_t>& starts);

// The same where queries are the last tokens of longer sequences of keys: sequence i has queries
// query_starts[i].., keys key_starts[i].. .
at::Tensor AttendRagged(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const std::vector<int64_t>& query_starts, const std::vector<int64_t>& key_starts);

}  // namespace kevin::local
