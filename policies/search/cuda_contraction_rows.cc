// Contractions with few rows or few columns: a matrix times a vector. A block reads several lines of the matrix once, with
// all lines of the other operand at hand.

#include <algorithm>

#include "policies/search/cuda_contraction.h"

namespace kevin::search {

const char* const kCudaContractionRows = R"(
// --- Products of few columns: kLines lines of `large` times all kFew lines of `few`, terms [begin, end) ---
template <int kLines, int kFew, class Element, class Store>
INLINE void ContractRows(const Element* large, long large_pitch, int lines, const Element* few, long few_pitch, int begin, int end, const Store& store) {
  constexpr int kWidth = 16 / sizeof(Element), kThreads = 256;
  float sums[kLines][kFew];
#pragma unroll
  for (int i = 0; i < kLines * kFew; ++i) sums[i / kFew][i % kFew] = 0.0f;
#pragma unroll 2
  for (int t = begin + (int)threadIdx.x * kWidth; t < end; t += kThreads * kWidth) {
    float4 a[kLines], b[kFew];
#pragma unroll
    for (int i = 0; i < kLines; ++i) a[i] = __ldcs((const float4*)(large + min(i, lines - 1) * large_pitch + t));   // a line beyond the last is the last again
#pragma unroll
    for (int j = 0; j < kFew; ++j) b[j] = __ldg((const float4*)(few + j * few_pitch + t));
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
#pragma unroll
      for (int j = 0; j < kFew; ++j) {
#pragma unroll
        for (int w = 0; w < kWidth; ++w) sums[i][j] += float(((const Element*)&a[i])[w]) * float(((const Element*)&b[j])[w]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kLines; ++i) {
#pragma unroll
    for (int j = 0; j < kFew; ++j) {
      const float all = AcrossBlock<kThreads>(sums[i][j], [](float x, float y) { return x + y; });
      if (threadIdx.x == 0 && i < lines) store(i, j, all);
    }
  }
}
)";

bool SuitsCudaRows(const Program& program, const Contraction& c, const CudaOperand& left,
                   const CudaOperand& right) {
  if (std::min(Points(c.m), Points(c.n)) > 4 || Points(c.k) < 512) return false;
  for (const ExprPtr& limit : c.k_limits) {
    if (limit) return false;
  }
  const int width = CudaProductType(program, c) == "float32" ? 4 : 8;
  for (const CudaOperand* operand : {&left, &right}) {
    const bool is_flat =
        operand->is_split && operand->conditions.empty() && operand->line_stride && operand->term_stride == 1;
    if (!is_flat || operand->wide || *operand->line_stride % width != 0 || Points(c.k) % width != 0)
      return false;
    const Buffer& buffer = program.buffers[static_cast<size_t>(operand->buffer)];
    if (buffer.base % width != 0 || (buffer.dtype == "float32") != (width == 4)) return false;
    if (!IsMultiple(operand->batch, width)) return false;
  }
  return true;
}

}  // namespace kevin::search
