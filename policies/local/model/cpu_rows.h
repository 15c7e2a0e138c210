#pragma once
// The small operations between matrix products on a CPU, on rows of float32, as loops that the compiler
// vectorises. No torch here: the file is compiled for AVX2. The caller distributes rows over threads.

#include <cstdint>
#include <span>

namespace kevin::local {

// out = x / sqrt(mean(x^2) + epsilon) * weight; out may be x.
void NormalizeRow(const float* x, const float* weight, int64_t n, float epsilon, float* out);
// Rotates the pairs (i, i + half) of one head in place.
void RotateHead(float* head, const float* cos, const float* sin, int64_t half);
// out = silu(gate) * up.
void SwigluRow(const float* gate, const float* up, int64_t n, float* out);

// The keys or values of one layer in the paged cache.
struct CachedLayer {
  float* keys = nullptr;  // [pages, page_tokens, kv_heads, head_dim]
  float* values = nullptr;
  int64_t page_tokens = 0, kv_heads = 0, head_dim = 0;

  int64_t TokenSize() const { return kv_heads * head_dim; }
  // The offset of token `position` of a sequence with these pages.
  int64_t Place(std::span<const int32_t> pages, int64_t position) const {
    return (pages[static_cast<size_t>(position / page_tokens)] * page_tokens + position % page_tokens) *
           TokenSize();
  }
};

// Attention of the `group` query heads that share kv head `head` over the first `length` tokens of a
// sequence: queries and out are [group, head_dim]; scores is scratch for group * length numbers.
void AttendHeads(const CachedLayer& layer, std::span<const int32_t> pages, int64_t length, int64_t head,
                 int64_t group, const float* queries, float* scores, float* out);

}  // namespace kevin::local
