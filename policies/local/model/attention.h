#pragma once
// Causal attention: inside packed sequences (training, prefill), and over the paged cache (sampling).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "policies/local/model/weights.h"

namespace kevin::local {

// Packed sequences in which the queries are the last tokens of the keys: sequence i has queries from
// query_starts[i] and keys from key_starts[i] on. Made once for all layers, because copying the offsets to a
// device synchronises with it.
struct RaggedRows {
  RaggedRows(std::vector<int64_t> of_queries, std::vector<int64_t> of_keys, at::Device device);
  std::vector<int64_t> query_starts, key_starts;  // n + 1 offsets of n sequences
  at::Tensor query_offsets, key_offsets;          // the same as int32 on a CUDA device, else undefined
};
// Queries and keys are the same tokens.
RaggedRows PackedRows(const std::vector<int64_t>& starts, at::Device device);

// q [T, heads, d], k and v [T', kv_heads, d]. Returns [T, heads * d]; differentiable. Flash attention on CUDA
// in 16 bits, otherwise sequence by sequence.
at::Tensor AttendRagged(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const RaggedRows& rows);

// One long sequence from its beginning, in inference: cuDNN's attention, which takes half the time of flash
// attention. Lengths are rounded up, because cuDNN builds a plan for each. Returns an undefined tensor where
// it is unavailable.
at::Tensor AttendLongSequence(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// The rows of one sequence in a step.
struct PagedSequence {
  std::span<const int32_t> pages;
  int64_t position = 0;   // of its first token
  int64_t first_row = 0;  // in the step
  int64_t tokens = 0;
  int64_t Length() const { return position + tokens; }
};

// Attention over the paged cache: writes the keys and values of a step, then attends over all tokens of its
// sequences.
class PagedAttention {
 public:
  // For one step. Cache and pages must outlive it.
  PagedAttention(const PagedCache& cache, std::vector<PagedSequence> sequences);

  // q [T, heads, head_dim], k and v [T, kv_heads, head_dim] of the step's tokens; [T, heads * head_dim].
  // Called in inference mode.
  at::Tensor Attend(int layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const;

 private:
  void WriteByRows(int layer, const at::Tensor& k, const at::Tensor& v) const;
  at::Tensor AttendByRows(int layer, const at::Tensor& q) const;
  void Write(int layer, const at::Tensor& k, const at::Tensor& v) const;
  at::Tensor AttendGathered(int layer, const at::Tensor& q) const;
  at::Tensor Gathered(int layer, int which) const;

  const PagedCache& cache_;
  std::vector<PagedSequence> sequences_;
  bool by_rows_ = false;  // few queries on a CPU: plain loops over the pages
  // Otherwise: the slots of the new tokens, and of all tokens of all sequences; all_first_ is -1 unless these
  // are consecutive from there on. rows_: the offsets of the sequences in both.
  at::Tensor new_slots_, all_slots_;
  int64_t all_first_ = 0, all_count_ = 0;
  std::optional<RaggedRows> rows_;
};

}  // namespace kevin::local
