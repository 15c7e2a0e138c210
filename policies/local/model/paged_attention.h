#pragma once
// Attention over the paged cache: a step's new keys and values are written, then its queries look at all that
// their sequences have there.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "policies/local/model/packed_attention.h"
#include "policies/local/model/weights.h"

namespace kevin::local {

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
