#pragma once
// Attention inside sequences laid end to end, each token over itself and what is before it in its sequence.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "policies/local/model/weights.h"

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

// Attention over the paged cache: a step's new keys and values are written, then its queries look at all that
// their sequences have there.

// Where one sequence's share of a step lies.
struct PagedSequence {
  std::span<const int32_t> pages;
  int64_t position = 0;   // of its first token
  int64_t first_row = 0;  // in the step
  int64_t tokens = 0;
  int64_t Length() const { return position + tokens; }
};

class PagedAttention {
 public:
  // Of one step; cache and the sequences' pages outlive it.
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
  // Else: slots of the new tokens; slots of all tokens of all sequences, whose first is -1 if these lie in
  // order from all_first_ on; where each sequence begins in either.
  at::Tensor new_slots_, all_slots_;
  int64_t all_first_ = 0, all_count_ = 0;
  std::optional<RaggedRows> rows_;
};

}  // namespace kevin::local
