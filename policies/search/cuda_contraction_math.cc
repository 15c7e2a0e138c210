// CUDA text: the arithmetic of a block on one slice of both operands, in fp32, in TF32 (once, or three times with the
// precision of fp32) and in 16 bits. Each has the accumulators of a thread, Step and Spill.

#include "policies/search/cuda_contraction.h"

namespace kevin::search {

const char* const kCudaContractionFma = R"(
// --- Products in fp32: a thread has kRows x kColumns results. kInRuns: the terms of a slice are added up by themselves, then
// the slices, so that a long sum is rounded at few of its terms ---
template <int kTileMOf, int kTileNOf, int kDepthOf, int kRows, int kColumns, bool kInRuns> struct ContractFma {
  static constexpr int kTileM = kTileMOf, kTileN = kTileNOf, kDepth = kDepthOf;
  static constexpr int kDown = kTileM / kRows, kAcross = kTileN / kColumns, kThreads = kDown * kAcross, kShares = 1;
  static_assert(kDown % 4 == 0 && kAcross % 8 == 0, "a warp is 4 x 8 threads");
  float acc[kRows][kColumns];

  static INLINE int X() { return threadIdx.x % 8 + threadIdx.x / 32 % (kAcross / 8) * 8; }
  static INLINE int Y() { return threadIdx.x / 8 % 4 + threadIdx.x / (4 * kAcross) * 4; }
  // Line i of the thread at `place`: neighbours in memory where lines are together, else spread.
  template <bool kTerms> static INLINE int Line(int place, int i, int threads) {
    return kTerms ? place + i * threads : place * 4 + i / 4 * (4 * threads) + i % 4;
  }
  // Two terms of a thread's lines.
  template <bool kTerms, int kPitch, int kCount>
  static INLINE void Read(float (&values)[2][kCount], const float* slice, int place, int threads, int term) {
    if constexpr (kTerms) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const float2 v = *(const float2*)(slice + (place + i * threads) * kPitch + term);
        values[0][i] = v.x, values[1][i] = v.y;
      }
    } else {
#pragma unroll
      for (int t = 0; t < 2; ++t) {
#pragma unroll
        for (int i = 0; i < kCount; i += 4) {
          const float4 v = *(const float4*)(slice + (term + t) * kPitch + place * 4 + i * threads);
          values[t][i] = v.x, values[t][i + 1] = v.y, values[t][i + 2] = v.z, values[t][i + 3] = v.w;
        }
      }
    }
  }
  INLINE void Clear() {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) acc[i][j] = 0.0f;
    }
  }
  template <class LeftFeed, class RightFeed, bool kLeftTerms, bool kRightTerms>
  INLINE void Step(const float* left, const float* right) {
    const int x = X(), y = Y();
    float run[kRows][kColumns];
    if constexpr (kInRuns) {
#pragma unroll
      for (int i = 0; i < kRows * kColumns; ++i) run[i / kColumns][i % kColumns] = 0.0f;
    }
    float (&sums)[kRows][kColumns] = kInRuns ? run : acc;
#pragma unroll 4
    for (int k = 0; k < kDepth; k += 2) {
      float a[2][kRows], b[2][kColumns];
      Read<kLeftTerms, LeftFeed::kPitch>(a, left, y, kDown, k);
      Read<kRightTerms, RightFeed::kPitch>(b, right, x, kAcross, k);
#pragma unroll
      for (int t = 0; t < 2; ++t) {
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
#pragma unroll
          for (int j = 0; j < kColumns; ++j) sums[i][j] += a[t][i] * b[t][j];
        }
      }
    }
    if constexpr (kInRuns) {
#pragma unroll
      for (int i = 0; i < kRows * kColumns; ++i) acc[i / kColumns][i % kColumns] += run[i / kColumns][i % kColumns];
    }
  }
  template <bool kLeftTerms, bool kRightTerms> INLINE void Spill(float* tile, int pitch) const {
    const int x = X(), y = Y();
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) tile[Line<kLeftTerms>(y, i, kDown) * pitch + Line<kRightTerms>(x, j, kAcross)] = acc[i][j];
    }
  }
};
)";

const char* const kCudaContractionTf32 = R"(
// --- Products on the tensor cores in TF32, whose numbers have 11 bits. x = big + small; big is rounded to nearest, so
// that small has either sign and loses at most the last bit of x ---
INLINE void ContractHalves(float x, unsigned& big, unsigned& small) {
  big = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
  small = __float_as_uint(x - __uint_as_float(big));
}
INLINE unsigned ContractRounded(float x) { return (__float_as_uint(x) + 0x1000u) & 0xffffe000u; }
// c += a b for a 16 x 8 and b 8 x 8, spread over the warp.
INLINE void ContractMmaTf32(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// A warp has kWarpM x kWarpN results. kProducts is 3 (the precision of fp32) or 1. The tensor cores round their sums
// towards zero: they add up runs of kRun terms, and ordinary additions the runs.
template <int kTileMOf, int kTileNOf, int kDepthOf, int kWarpM, int kWarpN, int kProducts> struct ContractTf32 {
  static constexpr int kTileM = kTileMOf, kTileN = kTileNOf, kDepth = kDepthOf;
  static constexpr int kAcross = kTileN / kWarpN, kThreads = 32 * (kTileM / kWarpM) * kAcross, kShares = 1;
  static constexpr int kM = kWarpM / 16, kN = kWarpN / 8, kRun = kProducts == 3 ? 16 : kDepth;
  float acc[kM][kN][4];

  static INLINE int Row() { return threadIdx.x / 32 / kAcross * kWarpM; }
  static INLINE int Column() { return threadIdx.x / 32 % kAcross * kWarpN; }
  INLINE void Clear() {
#pragma unroll
    for (int i = 0; i < kM * kN * 4; ++i) acc[i / (kN * 4)][i / 4 % kN][i % 4] = 0.0f;
  }
  template <bool kTerms, int kPitch> static INLINE float At(const float* slice, int line, int term) {
    return kTerms ? slice[line * kPitch + term] : slice[term * kPitch + line];
  }
  template <class LeftFeed, class RightFeed, bool kLeftTerms, bool kRightTerms>
  INLINE void Step(const float* left, const float* right) {
    const int lane = threadIdx.x % 32, row = Row() + lane / 4, column = Column() + lane / 4, k0 = lane % 4;
    float part[kM][kN][4];
#pragma unroll 2
    for (int k = 0; k < kDepth; k += 8) {
      unsigned a[2][kM][4];   // big and small
#pragma unroll
      for (int i = 0; i < kM; ++i) {
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          const float x = At<kLeftTerms, LeftFeed::kPitch>(left, row + i * 16 + q % 2 * 8, k + k0 + q / 2 * 4);
          if constexpr (kProducts == 3) ContractHalves(x, a[0][i][q], a[1][i][q]); else a[0][i][q] = ContractRounded(x);
        }
      }
#pragma unroll
      for (int j0 = 0; j0 < kN; j0 += 2) {   // two at a time, for want of registers
        unsigned b[2][2][2];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float x = At<kRightTerms, RightFeed::kPitch>(right, column + (j0 + j / 2) * 8, k + k0 + j % 2 * 4);
          if constexpr (kProducts == 3) ContractHalves(x, b[0][j / 2][j % 2], b[1][j / 2][j % 2]); else b[0][j / 2][j % 2] = ContractRounded(x);
        }
        if (k % kRun == 0) {
#pragma unroll
          for (int i = 0; i < kM * 8; ++i) part[i / 8][j0 + i / 4 % 2][i % 4] = 0.0f;
        }
#pragma unroll
        for (int p = kProducts == 3 ? 0 : 2; p < 3; ++p) {   // small x big, big x small, and last the largest
#pragma unroll
          for (int i = 0; i < kM * 2; ++i) ContractMmaTf32(part[i / 2][j0 + i % 2], a[p == 0][i / 2], b[p == 1][i % 2]);
        }
        if ((k + 8) % kRun == 0) {
#pragma unroll
          for (int i = 0; i < kM * 8; ++i) acc[i / 8][j0 + i / 4 % 2][i % 4] += part[i / 8][j0 + i / 4 % 2][i % 4];
        }
      }
    }
  }
  template <bool kLeftTerms, bool kRightTerms> INLINE void Spill(float* tile, int pitch) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int q = 0; q < 4; ++q) {
#pragma unroll
        for (int j = 0; j < kN; ++j) tile[(Row() + lane / 4 + i * 16 + q / 2 * 8) * pitch + Column() + j * 8 + lane % 4 * 2 + q % 2] = acc[i][j][q];
      }
    }
  }
};
)";

const char* const kCudaContractionHalf = R"(
// --- Products on the tensor cores in 16 bits, sums in fp32 ---
// Four 8 x 8 matrices; lane i gives the row i % 8 of matrix i / 8.
template <bool kTransposed> INLINE void ContractMatrix(unsigned (&to)[4], const void* row) {
  const unsigned at = (unsigned)__cvta_generic_to_shared(row);
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at));
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at));
  }
}
// c += a b for a 16 x 16 and b 16 x 8, spread over the warp.
template <bool kBrain> INLINE void ContractMma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  if constexpr (kBrain) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}
// kShares warps have the same results: each takes other terms of a slice.
template <int kTileMOf, int kTileNOf, int kDepthOf, int kWarpM, int kWarpN, bool kBrain, int kSharesOf = 1> struct ContractHalf {
  static constexpr int kTileM = kTileMOf, kTileN = kTileNOf, kDepth = kDepthOf, kShares = kSharesOf;
  static constexpr int kAcross = kTileN / kWarpN, kWarps = kTileM / kWarpM * kAcross, kThreads = 32 * kWarps * kShares;
  static_assert(kDepth % (16 * kShares) == 0, "a warp takes 16 terms at a time");
  static constexpr int kM = kWarpM / 16, kN = kWarpN / 8;
  float acc[kM][kN][4];

  static INLINE int Row() { return threadIdx.x / 32 % kWarps / kAcross * kWarpM; }
  static INLINE int Column() { return threadIdx.x / 32 % kAcross * kWarpN; }
  INLINE void Clear() {
#pragma unroll
    for (int i = 0; i < kM * kN * 4; ++i) acc[i / (kN * 4)][i / 4 % kN][i % 4] = 0.0f;
  }
  template <class LeftFeed, class RightFeed, bool kLeftTerms, bool kRightTerms, class Element>
  INLINE void Step(const Element* left, const Element* right) {
    const int lane = threadIdx.x % 32, low = lane % 8, middle = lane / 8 % 2 * 8, high = lane / 16 * 8;
#pragma unroll
    for (int step = 0; step < kDepth; step += 16 * kShares) {
      const int k = step + (kShares > 1 ? threadIdx.x / 32 / kWarps * 16 : 0);
      unsigned a[kM][4], b[kN / 2][4];
#pragma unroll
      for (int i = 0; i < kM; ++i) {
        const int line = Row() + i * 16;
        ContractMatrix<!kLeftTerms>(a[i], kLeftTerms ? left + (line + low + middle) * LeftFeed::kPitch + k + high
                                                   : left + (k + low + high) * LeftFeed::kPitch + line + middle);
      }
#pragma unroll
      for (int j = 0; j < kN / 2; ++j) {
        const int line = Column() + j * 16;
        ContractMatrix<!kRightTerms>(b[j], kRightTerms ? right + (line + low + high) * RightFeed::kPitch + k + middle
                                                     : right + (k + low + middle) * RightFeed::kPitch + line + high);
      }
#pragma unroll
      for (int i = 0; i < kM; ++i) {
#pragma unroll
        for (int j = 0; j < kN; ++j) ContractMma<kBrain>(acc[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
  template <bool kLeftTerms, bool kRightTerms> INLINE void Spill(float* tile, int pitch) const {
    const int lane = threadIdx.x % 32;
    if (kShares > 1) tile += threadIdx.x / 32 / kWarps * (kTileM * pitch);
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int q = 0; q < 4; ++q) {
#pragma unroll
        for (int j = 0; j < kN; ++j) tile[(Row() + lane / 4 + i * 16 + q / 2 * 8) * pitch + Column() + j * 8 + lane % 4 * 2 + q % 2] = acc[i][j][q];
      }
    }
  }
};
)";

}  // namespace kevin::search
