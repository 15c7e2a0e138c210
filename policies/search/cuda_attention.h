#pragma once
// Internal to write_cuda_attention*.cc: attention in 16 bits on the tensor cores. One kernel: a block holds a tile of
// queries and streams tiles of keys and values; scores, softmax and sums are fp32.

#include <cstdint>
#include <vector>

#include "policies/search/cuda_text.h"

namespace kevin::search {

extern const char* const kCudaAttentionHalf;

// Whether all operands are tensors of one 16-bit type that are read in packs of 8 elements, of at most 256 columns.
bool SuitsCudaAttentionHalf(const Program& program, const Attention& work);

// Tiles that fit the shared memory of a block in every combination, the most promising first. `queries`: multiples of 16
// up to 128; blocks of few queries divide the keys among their warps. `keys`: multiples of 64 (of 32 from 64 queries on).
struct CudaAttentionTiles {
  std::vector<int64_t> queries, keys;
};
CudaAttentionTiles ChooseCudaAttentionTiles(const TaskDevice& device, const Attention& work);

void WriteCudaAttentionHalf(CudaText& text, const Stage& stage, const Attention& work);

}  // namespace kevin::search
