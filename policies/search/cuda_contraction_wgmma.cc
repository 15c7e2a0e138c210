// CUDA text: products of 16-bit matrices by wgmma. One warp fetches slices of 64 terms with TMA; two groups of four warps
// multiply 64 rows each. The matrices lie plainly in memory, lines or terms together.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/cuda_contraction.h"

namespace kevin::search {
namespace {

constexpr const char* kCudaWgmmaParts =
    "\n#include <cuda.h>"
    R"(
// --- Products by wgmma ---
INLINE unsigned ContractShared(const void* at) { return (unsigned)__cvta_generic_to_shared(at); }
INLINE void ContractAwait(unsigned barrier, unsigned parity) {
  unsigned done;
  do {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  } while (!done);
}
INLINE void ContractFetch(unsigned to, const CUtensorMap* map, unsigned barrier, int x, int y, int batch) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(batch) : "memory");
}
// Slices with the 128-byte swizzle. `lead`: bytes from 64 lines to the next 64, where lines are together.
INLINE unsigned long ContractSlice(unsigned at, unsigned lead) {
  return (unsigned long)((at & 0x3ffff) >> 4) | (unsigned long)(lead >> 4) << 16 | (unsigned long)(1024 >> 4) << 32 | 1ul << 62;
}
)";

constexpr const char* kCudaWgmmaKernel = R"(
template <int kColumns, bool kBrain, bool kLeftLines, bool kRightLines, class Store>
INLINE void ContractWgmma(const CUtensorMap* left, const CUtensorMap* right, int rows, int columns, int terms, int left_batch, int right_batch, int m0, int n0, const Store& store) {
  constexpr int kDepth = 64, kStages = 4, kLeft = 128 * kDepth * 2, kStage = kLeft + kColumns * kDepth * 2, kPitch = kColumns + 8;
  extern __shared__ float4 contract_pool[];
  __shared__ unsigned long barriers[2 * kStages];   // a slice is there; a slice is free
  const unsigned pool = (ContractShared(contract_pool) + 1023) / 1024 * 1024, full = ContractShared(barriers), empty = full + 8 * kStages;
  const int group = threadIdx.x / 128, slices = (terms + kDepth - 1) / kDepth;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full + 8 * s) : "memory");
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 8;" ::"r"(empty + 8 * s) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  float acc[kColumns / 2];
  if (group == 2) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 256) {
      for (int s = 0; s < slices; ++s) {
        const unsigned at = pool + s % kStages * kStage, there = full + s % kStages * 8;
        ContractAwait(empty + s % kStages * 8, s / kStages % 2 ^ 1);
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(there), "r"(kStage) : "memory");
        if constexpr (kLeftLines) {
          for (int c = 0; c < 2; ++c) ContractFetch(at + c * 8192, left, there, m0 + c * 64, s * kDepth, left_batch);
        } else {
          ContractFetch(at, left, there, s * kDepth, m0, left_batch);
        }
        if constexpr (kRightLines) {
          for (int c = 0; c < kColumns / 64; ++c) ContractFetch(at + kLeft + c * 8192, right, there, n0 + c * 64, s * kDepth, right_batch);
        } else {
          ContractFetch(at + kLeft, right, there, s * kDepth, n0, right_batch);
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) acc[i] = 0.0f;
    for (int s = 0; s < slices; ++s) {
      const unsigned at = pool + s % kStages * kStage;
      ContractAwait(full + s % kStages * 8, s / kStages % 2);
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const unsigned long a = ContractSlice(at + group * 8192 + k * (kLeftLines ? 2048 : 32), 8192);
        const unsigned long b = ContractSlice(at + kLeft + k * (kRightLines ? 2048 : 32), 8192);
        ContractWarpgroup<kBrain, kLeftLines, kRightLines>(acc, a, b);
      }
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
      // The slice before this one is free.
      if (s > 0 && threadIdx.x % 32 == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(empty + (s - 1) % kStages * 8) : "memory");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    asm volatile("bar.sync 1, 256;" ::: "memory");   // nobody reads slices any more
    float* tile = (float*)((char*)contract_pool + (pool - ContractShared(contract_pool)));
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < kColumns / 2; i += 2) {
      *(float2*)(tile + (row + i / 2 % 2 * 8) * kPitch + column + i / 4 * 8) = float2{acc[i], acc[i + 1]};
    }
    asm volatile("bar.sync 1, 256;" ::: "memory");
    for (int c = threadIdx.x % kColumns; c < kColumns; c += 256) {
      if (n0 + c >= columns) continue;
#pragma unroll 4
      for (int r = threadIdx.x / kColumns; r < 128; r += 256 / kColumns) {
        if (m0 + r < rows) store(m0 + r, n0 + c, tile[r * kPitch + c]);
      }
    }
  }
}
)";

// The instruction for 64 x `columns` x 16, with its columns / 2 accumulators.
std::string CudaWgmmaInstruction(int columns, bool is_brain) {
  std::string list, operands;
  const int count = columns / 2;
  for (int i = 0; i < count; ++i) {
    list += fmt::format("{}%{}", i == 0 ? "" : ", ", i);
    operands += fmt::format("{}\"+f\"(d[{}])", i == 0 ? "" : ", ", i);
  }
  const char* type = is_brain ? "bf16" : "f16";
  return fmt::format(
      "asm volatile(\"wgmma.mma_async.sync.aligned.m64n{0}k16.f32.{1}.{1} {{{2}}}, %{3}, %{4}, 1, 1, 1, %{5}, %{6};\" : {7} : \"l\"(a), "
      "\"l\"(b), \"n\"((int)kLeftLines), \"n\"((int)kRightLines));\n",
      columns, type, list, count, count + 1, count + 2, count + 3, operands);
}

}  // namespace

std::string CudaContractionWgmma(int columns, bool is_brain) {
  return fmt::format(
      "{}// d += a b, spread over four warps.\ntemplate <bool kBrain, bool kLeftLines, bool kRightLines> "
      "INLINE void ContractWarpgroup(float (&d)[{}], unsigned long a, unsigned long b) {{\n{}}}\n{}",
      kCudaWgmmaParts, columns / 2, CudaWgmmaInstruction(columns, is_brain), kCudaWgmmaKernel);
}

// Bytes of dynamic shared memory: slices from a multiple of 1024, or the tile of results.
int64_t CudaWgmmaBytes(int columns) {
  return 1024 + std::max<int64_t>(4 * (128 + columns) * 128, 128 * (columns + 8) * 4);
}

bool SuitsCudaWgmma(const Program& program, const Contraction& c, const CudaOperand& left,
                    const CudaOperand& right) {
  if (CudaProductType(program, c) == "float32" || Points(c.k) < 64 || Points(c.m) < 64 || Points(c.n) < 64)
    return false;
  for (const ExprPtr& limit : c.k_limits) {
    if (limit) return false;
  }
  for (const CudaOperand* o : {&left, &right}) {
    if (!o->is_split || !o->conditions.empty() || !o->line_stride || !o->term_stride || !o->packed.empty())
      return false;
    const int64_t pitch = *o->line_stride == 1 ? *o->term_stride : *o->line_stride;
    if ((*o->line_stride != 1 && *o->term_stride != 1) || pitch % 8 != 0 || pitch < 64) return false;
    if (program.buffers[static_cast<size_t>(o->buffer)].base % 8 != 0) return false;
    const std::optional<int64_t> stride = CudaFlatStride(o->batch, c.batch);
    if (!stride || *stride % 8 != 0) return false;
    if (o->batch->op == "sum" && o->batch->integer != 0) return false;
    if (o->batch->op == "constant" && o->batch->integer != 0) return false;
  }
  return true;
}

}  // namespace kevin::search
