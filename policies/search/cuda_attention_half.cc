// CUDA text: attention on the tensor cores in 16 bits.

#include "policies/search/cuda_attention.h"

namespace kevin::search {

// Needs kCudaContractionFeed and kCudaContractionHalf. Functions that the emulation of the tests replaces are
// `INLINE void Attend...(` after a template head.
const char* const kCudaAttentionHalf = R"(
// --- Attention on the tensor cores in 16 bits, softmax and sums in fp32 ---
// Two floats as a pair of 16 bits, the first one low; and the reverse.
template <bool kBrain> INLINE void AttendPack(unsigned& to, float low, float high) {
  if constexpr (kBrain) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(to) : "f"(high), "f"(low));
  else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(to) : "f"(high), "f"(low));
}
template <bool kBrain> INLINE void AttendUnpack(unsigned pair, float& low, float& high) {
  if constexpr (kBrain) low = __uint_as_float(pair << 16), high = __uint_as_float(pair & 0xffff0000u);
  else asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\ncvt.f32.f16 %0, l;\ncvt.f32.f16 %1, h;\n}" : "=f"(low), "=f"(high) : "r"(pair));
}
INLINE void AttendPower(float& to, float x) { asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(to) : "f"(x)); }   // 2^x

// A block has kQ queries and streams tiles of kK keys and values, two in shared memory. A warp has 16 queries; where
// there are fewer than four such groups, several warps share the queries and divide the keys of a tile. bring_query(to),
// bring_key(to, first) and bring_value(to, first) start copies; score(product, query, key, is_inside) is -inf for what
// is not attended; weights are softmax(scale * score / log2(e)). finish(row, pack, values) stores 8 results. kQueryParts
// and kKeyParts 2: an operand is the sum of two tensors, the larger one first; products of two small parts are left out.
// kMaskedIsZero: the results of a query that attends to no key are 0; else NaN.
template <int kQ, int kK, int kD, int kW, int kQueryParts, int kKeyParts, bool kBrain, bool kMaskedIsZero, class Element, class BringQuery, class BringKey, class BringValue, class Score, class Finish>
INLINE void AttendTiles(float scale, unsigned first_q, unsigned inside, unsigned last, const BringQuery& bring_query, const BringKey& bring_key, const BringValue& bring_value, const Score& score, const Finish& finish) {
  constexpr int kGroups = kQ / 16, kShares = kQ >= 64 ? 1 : 64 / kQ, kThreads = 32 * kGroups * kShares, kMine = kK / kShares;
  constexpr int kDepthPitch = kD + 8, kWidthPitch = kW + 8;   // without bank conflicts
  constexpr int kKeys = kK * kDepthPitch, kStage = kKeyParts * kKeys + kK * kWidthPitch;
  constexpr bool kHolds = kD * kQueryParts <= 128;   // queries stay in registers
  static_assert(kMine % 16 == 0, "a warp takes 16 keys at a time");
  extern __shared__ float4 attend_pool[];
  Element* const queries = (Element*)attend_pool;
  Element* const stages = queries + kQueryParts * kQ * kDepthPitch;
  const int lane = threadIdx.x % 32, share = threadIdx.x / (32 * kGroups), rows = threadIdx.x / 32 % kGroups * 16;
  const int low = lane % 8, middle = lane / 8 % 2 * 8, high = lane / 16 * 8;
  const unsigned tiles = (last + kK - 1) / kK;
  unsigned query[kQueryParts][kHolds ? kD / 16 : 1][4];
  const auto read_query = [&](int d) {
#pragma unroll
    for (int p = 0; p < kQueryParts; ++p) ContractMatrix<false>(query[p][kHolds ? d / 16 : 0], queries + (p * kQ + rows + low + middle) * kDepthPitch + d + high);
  };
  bring_query(queries);
  bring_key(stages, 0u);
  bring_value(stages + kKeyParts * kKeys, 0u);
  ContractCommit();
  float out[kW / 8][4], most[2], total[2];
#pragma unroll
  for (int i = 0; i < kW / 2; ++i) out[i / 4][i % 4] = 0.0f;
#pragma unroll
  for (int r = 0; r < 2; ++r) most[r] = -Infinity(), total[r] = 0.0f;
  if constexpr (kHolds) {
    ContractWait<0>();
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kD; d += 16) read_query(d);
  }
#pragma unroll 1
  for (unsigned t = 0; t < tiles; ++t) {
    const Element* const keys = stages + t % 2 * kStage + share * kMine * kDepthPitch;
    const Element* const values = stages + t % 2 * kStage + kKeyParts * kKeys + share * kMine * kWidthPitch;
    ContractWait<0>();
    __syncthreads();   // the tile is there, and the other one is read
    if (t + 1 < tiles) {
      Element* const next = stages + (t + 1) % 2 * kStage;
      bring_key(next, (t + 1) * kK);
      bring_value(next + kKeyParts * kKeys, (t + 1) * kK);
    }
    ContractCommit();
    float weight[kMine / 8][4];
#pragma unroll
    for (int i = 0; i < kMine / 2; ++i) weight[i / 4][i % 4] = 0.0f;
#pragma unroll
    for (int d = 0; d < kD; d += 16) {
      if constexpr (!kHolds) read_query(d);
#pragma unroll
      for (int k = 0; k < kMine; k += 16) {
#pragma unroll
        for (int p = kKeyParts - 1; p >= 0; --p) {
          unsigned b[4];
          ContractMatrix<false>(b, keys + p * kKeys + (k + low + high) * kDepthPitch + d + middle);
#pragma unroll
          for (int q = p == 0 ? kQueryParts - 1 : 0; q >= 0; --q) {
#pragma unroll
            for (int j = 0; j < 2; ++j) ContractMma<kBrain>(weight[k / 8 + j], query[q][kHolds ? d / 16 : 0], b[2 * j], b[2 * j + 1]);
          }
        }
      }
    }
    const bool is_inside = (t + 1) * kK <= inside;
#pragma unroll
    for (int i = 0; i < kMine / 2; ++i) {
      float& one = weight[i / 4][i % 4];
      one = score(one, first_q + rows + lane / 4 + i / 2 % 2 * 8, t * kK + share * kMine + i / 4 * 8 + lane % 4 * 2 + i % 2, is_inside);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = most[r], factor;
#pragma unroll
      for (int j = 0; j < kMine / 8; ++j) top = NanMax(top, NanMax(weight[j][2 * r], weight[j][2 * r + 1]));
      top = AcrossWarp<4>(top, [](float a, float b) { return NanMax(a, b); });
      const float base = top == -Infinity() ? 0.0f : top * scale;
      AttendPower(factor, most[r] * scale - base);
      most[r] = top, total[r] *= factor;
#pragma unroll
      for (int i = 0; i < kMine / 4; ++i) {
        float& one = weight[i / 2][2 * r + i % 2];
        AttendPower(one, one * scale - base);
        total[r] += one;
      }
#pragma unroll
      for (int i = 0; i < kW / 4; ++i) out[i / 2][2 * r + i % 2] *= factor;
    }
    // A weight is the sum of two numbers of 16 bits: one alone would have an error as large as the rounding of the result.
#pragma unroll
    for (int k = 0; k < kMine; k += 16) {
      unsigned large[4], small[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float x = weight[k / 8 + i / 2][i % 2 * 2], y = weight[k / 8 + i / 2][i % 2 * 2 + 1];
        float x_large, y_large;
        AttendPack<kBrain>(large[i], x, y);
        AttendUnpack<kBrain>(large[i], x_large, y_large);
        AttendPack<kBrain>(small[i], x - x_large, y - y_large);
      }
#pragma unroll
      for (int w = 0; w < kW; w += 16) {
        unsigned b[4];
        ContractMatrix<true>(b, values + (k + low + middle) * kWidthPitch + w + high);
#pragma unroll
        for (int j = 0; j < 2; ++j) ContractMma<kBrain>(out[w / 8 + j], small, b[2 * j], b[2 * j + 1]);
#pragma unroll
        for (int j = 0; j < 2; ++j) ContractMma<kBrain>(out[w / 8 + j], large, b[2 * j], b[2 * j + 1]);
      }
    }
  }
  ContractWait<0>();
  __syncthreads();
  float* const results = (float*)attend_pool;            // [kShares][kQ][kWidthPitch]
  float* const tops = results + kShares * kQ * kWidthPitch;   // [kShares][kQ]
  float* const sums = tops + kShares * kQ;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = share * kQ + rows + lane / 4 + r * 8;
    const float all = AcrossWarp<4>(total[r], [](float a, float b) { return a + b; });
    if (lane % 4 == 0) tops[row] = most[r], sums[row] = all;
#pragma unroll
    for (int w = 0; w < kW / 8; ++w) *(float2*)(results + row * kWidthPitch + w * 8 + lane % 4 * 2) = float2{out[w][2 * r], out[w][2 * r + 1]};
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kQ * kW / 8; i += kThreads) {
    const int row = i / (kW / 8), pack = i % (kW / 8);
    float top = tops[row], all = 0.0f;
#pragma unroll
    for (int s = 1; s < kShares; ++s) top = NanMax(top, tops[s * kQ + row]);
    const float base = top == -Infinity() ? 0.0f : top * scale;
    float sum[8];
#pragma unroll
    for (int w = 0; w < 8; ++w) sum[w] = 0.0f;
#pragma unroll
    for (int s = 0; s < kShares; ++s) {
      float factor;
      AttendPower(factor, tops[s * kQ + row] * scale - base);
      all += sums[s * kQ + row] * factor;
#pragma unroll
      for (int w = 0; w < 8; ++w) sum[w] += results[(s * kQ + row) * kWidthPitch + pack * 8 + w] * factor;
    }
    Pack<8> values;
#pragma unroll
    for (int w = 0; w < 8; ++w) values.at[w] = kMaskedIsZero && all == 0.0f ? 0.0f : sum[w] / all;
    finish(row, pack, values);
  }
}
)";

}  // namespace kevin::search
