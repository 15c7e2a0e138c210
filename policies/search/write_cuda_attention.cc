// Attention: a block holds a tile of queries and streams tiles of keys and values through shared memory, with a running
// maximum and sum for each query. Products in float; those of 16 bits are in write_cuda_attention_half.cc.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/cuda_attention.h"

namespace kevin::search {
namespace {

constexpr int64_t kAcrossKeys = 16;  // threads that share a query
constexpr int64_t kAttentionThreads = 256;

// (fields) shared: queries [kQ][kD4], keys [kK][kD4], values [kK][kW16], weights [kQ][kK + 4]
constexpr const char* kScoresText = R"(float score[kR][kC];
#pragma unroll
for (int r = 0; r < kR; ++r) {
#pragma unroll
for (int c = 0; c < kC; ++c) score[r][c] = 0.0f;
}
#pragma unroll 4
for (int d = 0; d < kD; d += 4) {
float4 q[kR], k[kC];
#pragma unroll
for (int r = 0; r < kR; ++r) q[r] = *(const float4*)(queries + (over * kR + r) * kD4 + d);
#pragma unroll
for (int c = 0; c < kC; ++c) k[c] = *(const float4*)(keys + (across + c * 16) * kD4 + d);
#pragma unroll
for (int r = 0; r < kR; ++r) {
#pragma unroll
for (int c = 0; c < kC; ++c) {
score[r][c] += q[r].x * k[c].x;
score[r][c] += q[r].y * k[c].y;
score[r][c] += q[r].z * k[c].z;
score[r][c] += q[r].w * k[c].w;
}
}
}
)";
constexpr const char* kSoftmaxText = R"(#pragma unroll
for (int r = 0; r < kR; ++r) {
float high = most[r];
#pragma unroll
for (int c = 0; c < kC; ++c) high = NanMax(high, score[r][c]);
high = AcrossWarp<16>(high, [](float a, float b) { return NanMax(a, b); });
const float base = high == -Infinity() ? 0.0f : high, scale = expf(most[r] - base);
float more = 0.0f;
#pragma unroll
for (int c = 0; c < kC; ++c) {
score[r][c] = expf(score[r][c] - base);
more += score[r][c];
}
total[r] = total[r] * scale + AcrossWarp<16>(more, [](float a, float b) { return a + b; });
most[r] = high;
#pragma unroll
for (int v = 0; v < kV; ++v) out[r][v] *= scale;
}
)";
constexpr const char* kWeightedText = R"(#pragma unroll
for (int r = 0; r < kR; ++r) {
#pragma unroll
for (int c = 0; c < kC; ++c) weights[(over * kR + r) * (kK + 4) + across + c * 16] = score[r][c];
}
__syncthreads();
#pragma unroll 2
for (int k = 0; k < kK; k += 4) {
float4 p[kR];
#pragma unroll
for (int r = 0; r < kR; ++r) p[r] = *(const float4*)(weights + (over * kR + r) * (kK + 4) + k);
#pragma unroll
for (int v = 0; v < kV; ++v) {
const float* at = values + k * kW16 + across + v * 16;
const float v0 = at[0], v1 = at[kW16], v2 = at[2 * kW16], v3 = at[3 * kW16];
#pragma unroll
for (int r = 0; r < kR; ++r) {
out[r][v] += p[r].x * v0;
out[r][v] += p[r].y * v1;
out[r][v] += p[r].z * v2;
out[r][v] += p[r].w * v3;
}
}
}
)";

class CudaAttentionWriter {
 public:
  CudaAttentionWriter(CudaText& text, const Stage& stage, const Attention& work)
      : text_(text), kernel_(text, stage), work_(work), printer_(kernel_) {
    depth_ = Points(work.depth), width_ = Points(work.width);
    queries_ = Points(work.queries), keys_ = Points(work.keys);
    padded_depth_ = (depth_ + 3) / 4 * 4, padded_width_ = (width_ + 15) / 16 * 16;
    tile_q_ = queries_ > 32 ? 64 : queries_ > 16 ? 32 : 16;
    tile_k_ = keys_ > 32 ? 64 : keys_ > 16 ? 32 : 16;
    while (SharedBytes() > text.device().block_shared_bytes - 1024 && (tile_q_ > 16 || tile_k_ > 16)) {
      (tile_q_ >= tile_k_ ? tile_q_ : tile_k_) /= 2;
    }
    if (SharedBytes() > text.device().block_shared_bytes)
      throw Unsupported(
          fmt::format("attention of depth {} and width {} exceeds the shared memory", depth_, width_));
    while (padded_width_ / 16 * (tile_q_ / 16) > 64 && tile_q_ > 16) tile_q_ /= 2;
  }

  void Write() {
    const int64_t tiles = (queries_ + tile_q_ - 1) / tile_q_;
    std::string body = fmt::format(
        "constexpr int kQ = {}, kK = {}, kD = {}, kD4 = kD + 4, kW16 = {}, kR = kQ / 16, kC = kK / 16, kV = kW16 / 16;\n",
        tile_q_, tile_k_, padded_depth_, padded_width_);
    body +=
        "extern __shared__ float4 shared[];\n"
        "float* queries = (float*)shared;\nfloat* keys = queries + kQ * kD4;\nfloat* values = keys + kK * kD4;\n"
        "float* weights = values + kK * kW16;\nconst int over = threadIdx.x / 16, across = threadIdx.x % 16;\n";
    body += fmt::format(
        "const unsigned tiles = {}, batch = blockIdx.x / tiles, first_q = (tiles - 1 - blockIdx.x % tiles) * kQ;\n",
        kernel_.Number(tiles));
    body += DecodeLoops(printer_, work_.batch, "batch");
    body +=
        Fill(work_.query, work_.queries, work_.depth, "queries", "first_q", tile_q_, padded_depth_, "kD4");
    body +=
        "float out[kR][kV], most[kR], total[kR];\n#pragma unroll\nfor (int r = 0; r < kR; ++r) {\nmost[r] = -Infinity();\n"
        "total[r] = 0.0f;\n#pragma unroll\nfor (int v = 0; v < kV; ++v) out[r][v] = 0.0f;\n}\n";
    const std::string keys = kernel_.Number(keys_);
    body += work_.causal ? fmt::format("const unsigned last = min((unsigned)({}), first_q + kQ);\n", keys)
                         : fmt::format("const unsigned last = {};\n", keys);
    body += "for (unsigned first_k = 0; first_k < last; first_k += kK) {\n__syncthreads();\n";
    body += Fill(work_.key, work_.keys, work_.depth, "keys", "first_k", tile_k_, padded_depth_, "kD4");
    body += Fill(work_.value, work_.keys, work_.width, "values", "first_k", tile_k_, padded_width_, "kW16");
    body += "__syncthreads();\n" + std::string(kScoresText) + Scores() + (work_.softmax ? kSoftmaxText : "") +
            kWeightedText + "}\n";
    body += Results();
    const int64_t blocks = Points(work_.batch) * tiles;
    kernel_.Launch("Attend", body, fmt::format("{}L", blocks), std::to_string(kAttentionThreads),
                   std::to_string(kAttentionThreads), std::to_string(SharedBytes()));
  }

 private:
  int64_t SharedBytes() const {
    return 4 *
           ((tile_q_ + tile_k_) * (padded_depth_ + 4) + tile_k_ * padded_width_ + tile_q_ * (tile_k_ + 4));
  }

  // `tile`[row][column] = the operand at rows from `first`; zeros beyond the ends.
  std::string Fill(const ExprPtr& operand, const std::vector<Loop>& rows, const std::vector<Loop>& columns,
                   const std::string& tile, const std::string& first, int64_t count, int64_t padded,
                   const std::string& stride) {
    const int64_t wide = Points(columns);
    std::vector<Loop> packed = columns;
    ExprPtr value = operand;
    const int64_t width = !columns.empty() && columns.back().extent % 4 == 0 ? 4 : 1;
    if (width > 1) {
      value = InPacks(operand, columns.back(), width, kNeighbour);
      packed.back().extent /= width;
    }
    CudaPrinter printer = printer_;
    CudaLoads loads(kernel_, LoadsOf({value}), kNeighbour, width, "", "");
    const std::string row = kernel_.Fresh("row"), column = kernel_.Fresh("column"),
                      point = kernel_.Fresh("point");
    std::string text = fmt::format(
        "for (int i = threadIdx.x; i < {0} * {1}; i += {2}) {{\nconst unsigned {3} = i / {1}, {4} = i % {1}, {5} = {6} + {3};\n",
        count, padded / width, kAttentionThreads, row, column, point, first);
    text += fmt::format("if ({} < (unsigned)({}) && {} < {}) {{\n", point, kernel_.Number(Points(rows)),
                        column, wide / width);
    text += DecodeLoops(printer, rows, point) + DecodeLoops(printer, packed, column);
    text += loads.Declarations() + loads.Statements(printer, false);
    text += NeighbourLoop(
        printer, {}, kNeighbour, width, false, [&](CudaPrinter& inside) { loads.Bind(inside, "w"); },
        [&](CudaPrinter& inside) {
          const std::string element = inside.Value(value);
          return inside.TakeLines() +
                 fmt::format("{}[{} * {} + {} * {} + w] = {};\n", tile, row, stride, column, width, element);
        });
    text += fmt::format(
        "}} else {{\nfor (int w = 0; w < {0}; ++w) {1}[{2} * {3} + {4} * {0} + w] = 0.0f;\n}}\n}}\n", width,
        tile, row, stride, column);
    return text;
  }

  // Each score from its product; beyond the ends, and where a key is after its query, it is minus infinity (0 without
  // softmax).
  std::string Scores() {
    CudaPrinter printer = printer_;
    printer.lines().clear();
    printer.SetResult(0, "score[r][c]");
    const std::string q = kernel_.Number(queries_), k = kernel_.Number(keys_);
    std::string text =
        "#pragma unroll\nfor (int r = 0; r < kR; ++r) {\n#pragma unroll\nfor (int c = 0; c < kC; ++c) {\n"
        "const unsigned query = first_q + over * kR + r, key = first_k + across + c * 16;\n"
        "float value = " +
        std::string(work_.softmax ? "-Infinity()" : "0.0f") + ";\n";
    text += fmt::format("if (query < (unsigned)({}) && key < (unsigned)({}){}) {{\n", q, k,
                        work_.causal ? " && key <= query" : "");
    text += DecodeLoops(printer, work_.queries, "query") + DecodeLoops(printer, work_.keys, "key");
    const std::string value = printer.Value(work_.score);
    return text + printer.TakeLines() + "value = " + value + ";\n}\nscore[r][c] = value;\n}\n}\n";
  }

  std::string Results() {
    CudaPrinter printer = printer_;
    std::string text =
        "#pragma unroll\nfor (int r = 0; r < kR; ++r) {\nconst unsigned query = first_q + over * kR + r;\n#pragma unroll\n"
        "for (int v = 0; v < kV; ++v) {\nconst unsigned column = across + v * 16;\n";
    text += fmt::format("if (query < (unsigned)({}) && column < {}) {{\n", kernel_.Number(queries_), width_);
    text += DecodeLoops(printer, work_.queries, "query") + DecodeLoops(printer, work_.width, "column");
    const std::string result = work_.softmax ? "out[r][v] / total[r]" : "out[r][v]";
    text += fmt::format("const float result = {}{};\n",
                        work_.softmax && work_.masked_is_zero ? "total[r] == 0.0f ? 0.0f : " : "", result);
    text += NeighbourLoop(printer, work_.stores, kNeighbour, 1, false,
                          [](CudaPrinter& inside) { inside.SetResult(1, "result"); });
    return text + "}\n}\n}\n";
  }

  CudaText& text_;
  CudaKernel kernel_;
  const Attention& work_;
  CudaPrinter printer_;
  int64_t depth_, width_, queries_, keys_, padded_depth_, padded_width_, tile_q_, tile_k_;
};

}  // namespace

void WriteCudaAttention(CudaText& text, const Stage& stage, const Attention& work) {
  if (SuitsCudaAttentionHalf(text.program(), work)) return WriteCudaAttentionHalf(text, stage, work);
  CudaAttentionWriter(text, stage, work).Write();
}

}  // namespace kevin::search
