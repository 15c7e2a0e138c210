// Matrix products: a register tile of the result (`columns` vectors wide, as many rows as the registers
// allow), blocks of both operands copied ("packed") into the order in which the tile reads them, and the work
// shared among the threads by rows, by columns or, when the result is small, by terms of the sum.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/forms.h"
#include "policies/search/prelude.h"

namespace kevin::search {
namespace {

constexpr const char* kMatmulSizes = R"(
constexpr long kBatch = {batch}, kM = {m}, kN = {n}, kK = {k};
// Element (i, k) of the left operand is in0[i * kLeftRow + k * kLeftTerm]; likewise the right one.
constexpr long kLeftRow = {left_row}, kLeftTerm = {left_term}, kLeftBatch = {left_batch};
constexpr long kRightTerm = {right_term}, kRightColumn = {right_column}, kRightBatch = {right_batch};

constexpr long CeilDiv(long a, long b) { return (a + b - 1) / b; }
constexpr long Smaller(long a, long b) { return a < b ? a : b; }
constexpr long kRowShares = {row_shares}, kColumnShares = {column_shares}, kTermShares = {term_shares};
constexpr long kShareM = CeilDiv(kM, kRowShares), kShareK = CeilDiv(kK, kTermShares);

#if defined(__AVX512F__)
constexpr int kRegisters = 32;
#else
constexpr int kRegisters = 16;
#endif
constexpr int kColumns = {columns}, kTileN = kColumns * kLanes;
constexpr long kMaxRows = (kRegisters - 1 - kColumns) / kColumns;
constexpr int kTileM = CeilDiv(kShareM, CeilDiv(kShareM, kMaxRows));   // equal tiles rather than a small last one
constexpr int kRestOfShare = kShareM % kTileM, kRestOfLast = (kM - (CeilDiv(kM, kShareM) - 1) * kShareM) % kTileM;
constexpr long kShareN = CeilDiv(CeilDiv(kN, kColumnShares), kTileN) * kTileN;

constexpr long kDepth = Smaller({depth}, kShareK);
constexpr long kBlockM = CeilDiv(Smaller(256, kShareM), kTileM) * kTileM, kBlockN = Smaller({width}, kShareN);
static_assert({width} % kTileN == 0);
constexpr bool kPackLeft = {pack_left}, kPackRight = {pack_right} || kRightColumn != 1 || kN % kTileN != 0;
constexpr bool kOneBlock = kDepth >= kK;
constexpr int kThreads = {threads};
alignas(64) static float packed_left[kThreads][kPackLeft ? kBlockM * kDepth : 1];
alignas(64) static float packed_right[kThreads][kPackRight ? kBlockN * kDepth : 1];
alignas(64) static float partial[kTermShares > 1 ? kTermShares : 1][kTermShares > 1 ? kBatch * kM * kN : 1];
extern "C" int omp_get_thread_num();
)";

constexpr const char* kMatmulKernels = R"(
template <int kRows>
INLINE void Tile(const float* left, const float* right, float* to, long depth, long columns, bool adds) {
  Vec acc[kRows][kColumns];
#pragma GCC unroll 32
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) acc[i][c] = Vec{};
  }
  for (long k = 0; k < depth; ++k) {
    Vec b[kColumns];
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) b[c] = LoadVec(right + k * (kPackRight ? kTileN : kRightTerm) + c * kLanes);
#pragma GCC unroll 32
    for (int i = 0; i < kRows; ++i) {
      const Vec a = Splat(kPackLeft ? left[k * kRows + i] : left[i * kLeftRow + k * kLeftTerm]);
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c) acc[i][c] += a * b[c];
    }
  }
  alignas(64) float spill[kRows * kTileN];
  const bool is_whole = columns >= kTileN;
#pragma GCC unroll 32
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) {
      float* at = is_whole ? to + i * kN + c * kLanes : spill + i * kTileN + c * kLanes;
      if ({streams} && is_whole) StreamStore(at, acc[i][c]);
      else StoreVec(at, adds && is_whole ? LoadVec(at) + acc[i][c] : acc[i][c]);
    }
  }
  if (is_whole) return;
  for (long i = 0; i < kRows; ++i) {
    for (long j = 0; j < columns; ++j) to[i * kN + j] = spill[i * kTileN + j] + (adds ? to[i * kN + j] : 0.0f);
  }
}

__attribute__((noinline)) static void AnyTile(long rows, const float* left, const float* right, float* to,
                                              long depth, long columns, bool adds) {
  if (rows == kTileM) Tile<kTileM>(left, right, to, depth, columns, adds);
  else if (rows == kRestOfShare) Tile<kRestOfShare ? kRestOfShare : 1>(left, right, to, depth, columns, adds);
  else Tile<kRestOfLast ? kRestOfLast : 1>(left, right, to, depth, columns, adds);
}

static void PackLeft(const float* from, float* to, long rows, long depth) {
  for (long i = 0; i < rows; i += kTileM) {
    const long tile = Smaller(kTileM, rows - i);
    for (long r = 0; r < tile; ++r) {
      for (long k = 0; k < depth; ++k) to[i * depth + k * tile + r] = from[(i + r) * kLeftRow + k * kLeftTerm];
    }
  }
}

static void PackRight(const float* from, float* to, long columns, long depth) {
  for (long j = 0; j < columns; j += kTileN) {
    const long tile = Smaller(kTileN, columns - j);
    float* panel = to + j * depth;
    if (tile < kTileN) __builtin_memset(panel, 0, sizeof(float) * kTileN * depth);
    if (kRightColumn == 1 && tile == kTileN) {
      for (long k = 0; k < depth; ++k) {
        for (int c = 0; c < kColumns; ++c) {
          StoreVec(panel + k * kTileN + c * kLanes, LoadVec(from + k * kRightTerm + j + c * kLanes));
        }
      }
    } else {
      constexpr long kStep = 16;   // terms at a time, so that the panel's lines stay in the nearest cache
      for (long k0 = 0; k0 < depth; k0 += kStep) {
        for (long c = 0; c < tile; ++c) {
          for (long k = k0; k < Smaller(k0 + kStep, depth); ++k) {
            panel[k * kTileN + c] = from[k * kRightTerm + (j + c) * kRightColumn];
          }
        }
      }
    }
  }
}
)";

constexpr const char* kMatmulLoops = R"(
// Rows [m0, m1), columns [n0, n1), terms [k0, k1) of one product.
static void Product(const float* left, const float* right, float* to, long m0, long m1, long n0, long n1, long k0,
                    long k1) {
  const int thread = omp_get_thread_num();
  float *const left_block = packed_left[thread], *const right_block = packed_right[thread];
  for (long n = n0; n < n1; n += kBlockN) {
    const long width = Smaller(kBlockN, n1 - n);
    for (long k = k0; k < k1; k += kDepth) {
      const long depth = Smaller(kDepth, k1 - k);
      if (kPackRight) PackRight(right + k * kRightTerm + n * kRightColumn, right_block, width, depth);
      for (long m = m0; m < m1; m += kBlockM) {
        const long height = Smaller(kBlockM, m1 - m);
        if (kPackLeft) PackLeft(left + m * kLeftRow + k * kLeftTerm, left_block, height, depth);
        for (long j = 0; j < width; j += kTileN) {
          const float* panel = kPackRight ? right_block + j * depth : right + k * kRightTerm + n + j;
          for (long i = 0; i < height; i += kTileM) {
            const float* rows = kPackLeft ? left_block + i * depth : left + (m + i) * kLeftRow + k * kLeftTerm;
            AnyTile(Smaller(kTileM, height - i), rows, panel, to + (m + i) * kN + n + j, depth, width - j, k > k0);
          }
        }
      }
    }
  }
}

{head} {
  constexpr long kShares = kRowShares * kColumnShares * kTermShares;
#pragma omp parallel for schedule(static) num_threads(kThreads)
  for (long job = 0; job < kBatch * kShares; ++job) {
    const long batch = job / kShares, term = job % kTermShares;
    const long row = job / kTermShares % kRowShares, column = job / (kTermShares * kRowShares) % kColumnShares;
    float* to = (kTermShares > 1 ? partial[term] : out0) + batch * kM * kN;
    Product({left} + batch * kLeftBatch, {right} + batch * kRightBatch, to, row * kShareM,
            Smaller((row + 1) * kShareM, kM), column * kShareN, Smaller((column + 1) * kShareN, kN),
            term * kShareK, Smaller((term + 1) * kShareK, kK));
{fence}  }
  if (kTermShares == 1) return;
#pragma omp parallel for schedule(static) num_threads(kThreads)
  for (long i = 0; i < kBatch * kM * kN; ++i) {
    float sum = partial[0][i];
    for (long s = 1; s < kTermShares; ++s) sum += partial[s][i];
    out0[i] = sum;
  }
}
)";

std::string WriteMatmul(const ProductForm& p, const Task& task, const Setting& setting) {
  const bool by_rows = Is(setting, "share", "rows"), by_columns = Is(setting, "share", "columns");
  const bool by_terms = Is(setting, "share", "terms");
  const std::string threads = std::to_string(task.threads);
  const std::string& pack = setting.at("pack");
  // Streaming needs each result written once and every row aligned.
  const bool streams = Is(setting, "store", "stream") && !by_terms && p.n.size % 16 == 0;
  const std::map<std::string, std::string> fields = {
      {"left", Name(p.left)},
      {"right", Name(p.right)},
      {"batch", p.batch.text},
      {"m", p.m.text},
      {"n", p.n.text},
      {"k", p.k.text},
      {"left_row", p.left_row},
      {"left_term", p.left_term},
      {"left_batch", p.left_batch},
      {"right_term", p.right_term},
      {"right_column", p.right_column},
      {"right_batch", p.right_batch},
      {"row_shares", by_rows ? threads : "1"},
      {"column_shares", by_columns ? threads : "1"},
      {"term_shares", by_terms ? threads : "1"},
      {"columns", setting.at("columns")},
      {"depth", setting.at("depth")},
      {"width", "(768 / kTileN * kTileN)"},
      {"pack_left", pack == "both" || pack == "left" ? "true" : "false"},
      {"pack_right", pack == "both" || pack == "right" ? "true" : "false"},
      {"threads", threads},
      {"streams", streams ? "kOneBlock" : "false"},
      {"fence", streams ? "    StreamFence();\n" : ""},
      {"head", LaunchHead(task)}};
  return Fill(std::string(kMatmulSizes) + kMatmulKernels + kMatmulLoops, fields);
}

std::vector<Knob> MatmulKnobs(const ProductForm& p, int threads) {
  const double rows = static_cast<double>(p.m.size), columns = static_cast<double>(p.n.size);
  const bool is_small = rows * columns < 128.0 * 128.0 && p.k.size >= 4096 && p.batch.size == 1;
  Knob share{"share", {"columns", "rows"}};
  if (rows > 1.5 * columns) std::swap(share.values[0], share.values[1]);
  if (p.batch.size >= threads) share.values = {"none"};
  if (is_small) share.values.insert(share.values.begin(), "terms");
  Knob pack{"pack", {"right", "both", "none", "left"}};
  if (is_small) pack.values = {"none", "right", "both", "left"};
  Knob store{"store", {"plain"}};
  if (p.k.size <= 256) store.values = {"stream", "plain"};
  Knob depth{"depth", {"256", "512", "128", "1024"}};
  return {pack, share, {"columns", {"2", "3", "4", "1"}}, depth, store, {"lanes", {"full", "half"}}};
}

}  // namespace

std::optional<Kernel> RecogniseMatmul(const Computation& computation) {
  const std::optional<ProductForm> product = FindProduct(computation);
  if (!product) return std::nullopt;
  Kernel kernel;
  kernel.family = "matmul";
  kernel.summary = "register tiles over packed blocks";
  kernel.knobs = MatmulKnobs(*product, computation.task->threads);
  kernel.write = [p = *product, task = *computation.task](const Setting& setting) {
    return WithPrelude(WriteMatmul(p, task, setting), setting.at("lanes"));
  };
  return kernel;
}

}  // namespace kevin::search
