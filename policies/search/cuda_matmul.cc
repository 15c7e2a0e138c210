// CUDA: matrix products. A block computes a tile of the result from slices of both operands that asynchronous
// copies bring to shared memory, several slices ahead; a thread keeps rows x columns of the tile in
// registers. For small results the terms of the sum are divided among blocks, and a second kernel adds their
// sums.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/forms.h"
#include "policies/search/prelude.h"

namespace kevin::search {
namespace {

constexpr const char* kCudaMatmulSizes = R"(
constexpr long kBatch = {batch}, kM = 1L * {m}, kN = 1L * {n}, kK = 1L * {k};
// Element (i, k) of the left operand is left[i * kLeftRow + k * kLeftTerm]; likewise the right one.
constexpr long kLeftRow = {left_row}, kLeftTerm = {left_term}, kLeftBatch = {left_batch};
constexpr long kRightTerm = {right_term}, kRightColumn = {right_column}, kRightBatch = {right_batch};

constexpr int kThreads = 256, kAcross = 16;   // threads of a block: 16 x 16
constexpr int kTileM = {tile_m}, kTileN = {tile_n}, kDepth = {depth}, kStages = {stages};
constexpr int kRows = kTileM / kAcross, kColumns = kTileN / kAcross;   // of a thread
constexpr long kTilesM = (kM + kTileM - 1) / kTileM, kTilesN = (kN + kTileN - 1) / kTileN;
constexpr long kShares = {shares}, kShare = ((kK + kShares - 1) / kShares + kDepth - 1) / kDepth * kDepth;
)";

// A slice of an operand in shared memory, in the order that the operand has in memory.
constexpr const char* kSlice = R"(
// kLines x kDepth numbers of an operand: element (line, term). Numbers that are neighbours in memory stay so.
template <int kLines, bool kTermsTogether> struct Slice {
static constexpr int kPitch = kTermsTogether ? kDepth + 4 : kLines + 8;   // without bank conflicts
static constexpr int kSize = kTermsTogether ? kLines * kPitch : kDepth * kPitch;

// Copies lines [line, line + kLines) and terms [term, term + kDepth); zeros outside the limits.
template <int kCopy> static INLINE void Bring(float* to, const float* from, long line, long lines, long line_step,
                                              long term, long terms, long term_step) {
constexpr int kShort = kTermsTogether ? kDepth : kLines, kPerRun = kShort / kCopy;
constexpr int kCopies = kLines * kDepth / kCopy;
#pragma unroll
for (int c = 0; c < (kCopies + kThreads - 1) / kThreads; ++c) {
const int copy = c * kThreads + threadIdx.x, run = copy / kPerRun, within = copy % kPerRun * kCopy;
if (kCopies % kThreads == 0 || copy < kCopies) {
const long l = line + (kTermsTogether ? run : within), t = term + (kTermsTogether ? within : run);
const bool is_there = l < lines && t < terms;
CopyAsync<kCopy * 4>(to + run * kPitch + within, is_there ? from + l * line_step + t * term_step : from, is_there);
}
}
}
static INLINE float At(const float* slice, int line, int term) {
return kTermsTogether ? slice[line * kPitch + term] : slice[term * kPitch + line];
}
// Line `i` of thread `place`: neighbours in memory when the slice has lines together, else spread.
static INLINE int Line(int place, int i) {
return kTermsTogether ? place + i * kAcross : place * 4 + i / 4 * (4 * kAcross) + i % 4;
}
// Two terms of a thread's lines.
template <int kCount> static INLINE void Read(float (&values)[2][kCount], const float* slice, int place, int term) {
if constexpr (kTermsTogether) {
#pragma unroll
for (int i = 0; i < kCount; ++i) {
const float2 v = *(const float2*)(slice + Line(place, i) * kPitch + term);
values[0][i] = v.x, values[1][i] = v.y;
}
} else {
#pragma unroll
for (int t = 0; t < 2; ++t) {
#pragma unroll
for (int i = 0; i < kCount; i += 4) {
const float4 v = *(const float4*)(slice + (term + t) * kPitch + Line(place, i));
values[t][i] = v.x, values[t][i + 1] = v.y, values[t][i + 2] = v.z, values[t][i + 3] = v.w;
}
}
}
}
};
typedef Slice<kTileM, kLeftTerm == 1 && kLeftRow != 1> Left;
typedef Slice<kTileN, kRightTerm == 1 && kRightColumn != 1> Right;
constexpr int kStage = Left::kSize + Right::kSize;
)";

constexpr const char* kCudaMatmul = R"(
// Blocks go through the tiles in bands, so that those at work together share operands in the cache.
__global__ void __launch_bounds__(kThreads, {resident}) Product(const float* __restrict__ left, const float* __restrict__ right, float* __restrict__ out) {
extern __shared__ float4 pool[];
float* stages = (float*)pool;
constexpr long kBand = {band};
const long batch = blockIdx.y, share = blockIdx.z;
const long band = blockIdx.x / (kBand * kTilesN), within = blockIdx.x % (kBand * kTilesN);
const long height = min(kBand, kTilesM - band * kBand);
const long m0 = (band * kBand + within % height) * kTileM, n0 = within / height * kTileN;
const long begin = min(share * kShare, kK), end = min(begin + kShare, kK);
const int slices = int((end - begin + kDepth - 1) / kDepth);
left += batch * kLeftBatch;
right += batch * kRightBatch;
const auto bring = [&](int s) {
if (s < slices) {
float* stage = stages + s % kStages * kStage;
const long term = begin + long(s) * kDepth;
Left::Bring<{left_copy}>(stage, left, m0, kM, kLeftRow, term, end, kLeftTerm);
Right::Bring<{right_copy}>(stage + Left::kSize, right, n0, kN, kRightColumn, term, end, kRightTerm);
}
CommitCopies();   // an empty group where there was nothing left, so that the count stays right
};
{declare}#pragma unroll
for (int s = 0; s < kStages - 1; ++s) bring(s);
for (int s = 0; s < slices; ++s) {
WaitForCopies<kStages - 2>();
__syncthreads();   // everybody's copies are there, and the oldest stage is free
bring(s + kStages - 1);
const float* stage = stages + s % kStages * kStage;
{compute}}
float* to = out + (share * kBatch + batch) * kM * kN;
{write}}
)";

// One form of arithmetic: its variables, the work on one slice, and the writing of the tile.
struct Inside {
  const char *functions, *declare, *compute, *write;
};

constexpr Inside kFma = {
    "",
    R"(const int x = threadIdx.x % 8 + threadIdx.x / 32 % 2 * 8, y = threadIdx.x / 8 % 4 + threadIdx.x / 64 * 4;
float acc[kRows][kColumns];
#pragma unroll
for (int i = 0; i < kRows; ++i) {
#pragma unroll
for (int j = 0; j < kColumns; ++j) acc[i][j] = 0.0f;
}
)",
    R"(#pragma unroll 4
for (int k = 0; k < kDepth; k += 2) {
float a[2][kRows], b[2][kColumns];
Left::Read(a, stage, y, k);
Right::Read(b, stage + Left::kSize, x, k);
#pragma unroll
for (int t = 0; t < 2; ++t) {
#pragma unroll
for (int i = 0; i < kRows; ++i) {
#pragma unroll
for (int j = 0; j < kColumns; ++j) acc[i][j] += a[t][i] * b[t][j];
}
}
}
)",
    R"(#pragma unroll
for (int i = 0; i < kRows; ++i) {
const long m = m0 + Left::Line(y, i);
#pragma unroll
for (int j = 0; j < kColumns; j += {store}) {
const long n = n0 + Right::Line(x, j);
if (m < kM && n < kN) {
Pack<{store}> pack;
#pragma unroll
for (int w = 0; w < {store}; ++w) pack.at[w] = acc[i][j + w];
StoreOnce<{store}>(to + m * kN + n, pack);
}
}
}
)"};

constexpr Inside kTf32x3 = {
    R"(
// x = big + small up to 2^-21 of x; the tensor cores read the upper 19 bits of each.
INLINE void Halves(float x, unsigned& big, unsigned& small) {
big = __float_as_uint(x) & 0xffffe000u;
small = __float_as_uint(x - __uint_as_float(big));
}
// c += a b for a 16 x 8 and b 8 x 8, spread over the warp.
INLINE void MultiplyTf32(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
)",
    R"(constexpr int kFragmentsM = kTileM / 32, kFragmentsN = kTileN / 32;   // 16 x 8 each; the warps are 2 x 4
const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
const int row = warp / 4 * (kTileM / 2) + lane / 4, column = warp % 4 * (kTileN / 4) + lane / 4, k0 = lane % 4;
float acc[kFragmentsM][kFragmentsN][4], part[kFragmentsM][kFragmentsN][4];
#pragma unroll
for (int i = 0; i < kFragmentsM * kFragmentsN * 4; ++i) (&acc[0][0][0])[i] = 0.0f;
)",
    R"(#pragma unroll
for (int i = 0; i < kFragmentsM * kFragmentsN * 4; ++i) (&part[0][0][0])[i] = 0.0f;
#pragma unroll
for (int k = 0; k < kDepth; k += 8) {
unsigned a[2][kFragmentsM][4], b[2][kFragmentsN][2];   // big and small
#pragma unroll
for (int i = 0; i < kFragmentsM; ++i) {
#pragma unroll
for (int q = 0; q < 4; ++q) {
Halves(Left::At(stage, row + i * 16 + q % 2 * 8, k + k0 + q / 2 * 4), a[0][i][q], a[1][i][q]);
}
}
#pragma unroll
for (int j = 0; j < kFragmentsN; ++j) {
#pragma unroll
for (int q = 0; q < 2; ++q) {
Halves(Right::At(stage + Left::kSize, column + j * 8, k + k0 + q * 4), b[0][j][q], b[1][j][q]);
}
}
#pragma unroll
for (int p = 0; p < 3; ++p) {   // small x big, big x small, big x big
#pragma unroll
for (int i = 0; i < kFragmentsM; ++i) {
#pragma unroll
for (int j = 0; j < kFragmentsN; ++j) MultiplyTf32(part[i][j], a[p == 0][i], b[p == 1][j]);
}
}
}
// The tensor cores' own sums round towards zero, so they are kept short.
#pragma unroll
for (int i = 0; i < kFragmentsM * kFragmentsN * 4; ++i) (&acc[0][0][0])[i] += (&part[0][0][0])[i];
)",
    R"(#pragma unroll
for (int i = 0; i < kFragmentsM; ++i) {
#pragma unroll
for (int h = 0; h < 2; ++h) {
const long m = m0 + row + i * 16 + h * 8;
#pragma unroll
for (int j = 0; j < kFragmentsN; ++j) {
const long n = n0 + column - lane / 4 + j * 8 + k0 * 2;
if (m >= kM) continue;
if constexpr (kN % 2 == 0) {
Pack<2> pack;
pack.at[0] = acc[i][j][h * 2], pack.at[1] = acc[i][j][h * 2 + 1];
if (n < kN) StoreOnce<2>(to + m * kN + n, pack);
} else {
if (n < kN) to[m * kN + n] = acc[i][j][h * 2];
if (n + 1 < kN) to[m * kN + n + 1] = acc[i][j][h * 2 + 1];
}
}
}
}
)"};

constexpr const char* kSum = R"(
__global__ void Sum(const float* __restrict__ shares, float* __restrict__ out) {
const long i = blockIdx.x * 256L + threadIdx.x;
if (i >= kBatch * kM * kN) return;
float total = shares[i];
#pragma unroll 8
for (long s = 1; s < kShares; ++s) total += shares[s * (kBatch * kM * kN) + i];
out[i] = total;
}
)";

constexpr const char* kLaunch = R"(
{head} {
const long tiles = ceil_div({m}, {tile_m}) * ceil_div({n}, {tile_n});
{launch}}
)";

bool IsOne(const std::string& step) { return step == "1"; }

int LinePitch(bool terms_together, int lines, int depth) {
  return terms_together ? lines * (depth + 4) : depth * (lines + 8);
}

std::string LaunchText(const ProductForm& p, const Setting& setting, int stage_floats) {
  const std::string& shares = setting.at("shares");
  const std::string operands = Name(p.left) + ", " + Name(p.right);
  const int shared = stage_floats * Integer(setting, "stages") * 4;
  if (shares == "1") {
    return fmt::format("Product<<<dim3(tiles, {}, 1), 256, {}>>>({}, out0);\n", p.batch.text, shared,
                       operands);
  }
  return fmt::format(
      "const long count = {0} * ({1}) * ({2});\nfloat* shares = workspace<float>({3} * count);\n"
      "Product<<<dim3(tiles, {0}, {3}), 256, {4}>>>({5}, shares);\n"
      "Sum<<<ceil_div(count, 256), 256>>>(shares, out0);\n",
      p.batch.text, p.m.text, p.n.text, shares, shared, operands);
}

std::string WriteCudaMatmul(const ProductForm& p, const Task& task, const Setting& setting) {
  const std::string& tile = setting.at("tile");
  const std::string tile_m = tile.substr(0, tile.find('x')), tile_n = tile.substr(tile.find('x') + 1);
  const bool left_terms = IsOne(p.left_term) && !IsOne(p.left_row);
  const bool right_terms = IsOne(p.right_term) && !IsOne(p.right_column);
  const int64_t left_run = left_terms ? p.k.size : p.m.size, right_run = right_terms ? p.k.size : p.n.size;
  const int depth = Integer(setting, "depth");
  const bool is_tensor = Is(setting, "via", "tf32x3");
  const Inside& inside = is_tensor ? kTf32x3 : kFma;
  const std::string store = !right_terms && p.n.size % 4 == 0 ? "4" : "1";
  const int stage = LinePitch(left_terms, std::atoi(tile_m.c_str()), depth) +
                    LinePitch(right_terms, std::atoi(tile_n.c_str()), depth);
  std::map<std::string, std::string> fields = {{"batch", p.batch.text},
                                               {"m", p.m.text},
                                               {"n", p.n.text},
                                               {"k", p.k.text},
                                               {"left_row", p.left_row},
                                               {"left_term", p.left_term},
                                               {"left_batch", p.left_batch},
                                               {"right_term", p.right_term},
                                               {"right_column", p.right_column},
                                               {"right_batch", p.right_batch},
                                               {"tile_m", tile_m},
                                               {"tile_n", tile_n},
                                               {"resident", is_tensor ? "1" : "2"},
                                               {"declare", inside.declare},
                                               {"compute", inside.compute},
                                               {"band", setting.at("band")},
                                               {"left_copy", left_run % 4 == 0 ? "4" : "1"},
                                               {"right_copy", right_run % 4 == 0 ? "4" : "1"},
                                               {"write", Fill(inside.write, {{"store", store}})},
                                               {"launch", LaunchText(p, setting, stage)},
                                               {"head", LaunchHead(task)}};
  for (const char* knob : {"depth", "stages", "shares"}) fields[knob] = setting.at(knob);
  const bool is_shared_out = !Is(setting, "shares", "1");
  return Fill(std::string(kCudaMatmulSizes) + kSlice + inside.functions + kCudaMatmul +
                  (is_shared_out ? kSum : "") + kLaunch,
              fields);
}

std::vector<Knob> CudaMatmulKnobs(const ProductForm& p, const TaskDevice& device) {
  const int64_t rows = p.m.size, columns = p.n.size;
  const int64_t tiles = p.batch.size * ((rows + 127) / 128) * ((columns + 127) / 128);
  Knob tile{"tile", {"128x128", "128x64", "64x128", "64x64"}};
  const bool is_small = rows <= 64 || columns <= 64;
  if (is_small) tile.values = {"64x64", "128x64", "64x128"};
  Knob shares{"shares", {"1"}};
  const int64_t most = p.k.size / 128;  // a share of fewer terms is not worth its second pass
  for (const int waves : {4, 2}) {
    const int64_t count = std::min<int64_t>({waves * device.multiprocessors / tiles, most, 4096});
    if (count > 1) shares.values.insert(shares.values.begin(), std::to_string(count));
  }
  if (shares.values.size() == 3 && shares.values[0] == shares.values[1])
    shares.values.erase(shares.values.begin());
  return {{"via", {"tf32x3", "fma"}}, tile, shares, {"depth", {"32", "16"}}, {"stages", {"3", "4", "2"}},
          {"band", {"8", "16", "1"}}};
}

}  // namespace

std::optional<Kernel> RecogniseCudaMatmul(const Computation& computation) {
  const std::optional<ProductForm> product = FindProduct(computation);
  if (!product) return std::nullopt;
  if (product->batch.size > 65535) throw Unsupported("a matrix product with more than 65535 batches");
  Kernel kernel;
  kernel.family = "matmul";
  kernel.summary = "register tiles fed by asynchronous copies to shared memory";
  kernel.knobs = CudaMatmulKnobs(*product, computation.task->device);
  kernel.write = [p = *product, task = *computation.task](const Setting& setting) {
    return WithCudaPrelude(WriteCudaMatmul(p, task, setting));
  };
  return kernel;
}

}  // namespace kevin::search
