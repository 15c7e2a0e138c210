// A product of any form: tiles of 64 x 64 with 4 x 4 results a thread, elements loaded one by one.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/cuda_text.h"

namespace kevin::search {
namespace {

constexpr int kPlainTile = 64, kPlainDeep = 16;

bool LiesAlong(const ExprPtr& operand, const std::vector<Loop>& loops) {
  const std::vector<CudaLoad> loads = LoadsOf({operand});
  return !loads.empty() && !loops.empty() && StrideOf(loads[0].load->args[0], loops.back().variable) == 1;
}

// Fills `tile`[k][row] for 64 rows and 16 k with the operand.
std::string FillTile(const CudaPrinter& outside, const Contraction& work, const ExprPtr& operand,
                     const std::vector<Loop>& rows, const std::string& tile, const std::string& first) {
  CudaPrinter printer = outside;
  printer.lines().clear();
  CudaKernel& kernel = printer.kernel();
  const bool along_k = LiesAlong(operand, work.k);
  const std::string row = kernel.Fresh("row"), deep = kernel.Fresh("deep"), point = kernel.Fresh("point"),
                    k = kernel.Fresh("k");
  std::string text = fmt::format(
      "#pragma unroll\nfor (int e = 0; e < 4; ++e) {{\nconst int at = e * 256 + threadIdx.x;\nconst int {0} = {2}, {1} = {3};\n",
      row, deep, along_k ? "at / 16" : "at % 64", along_k ? "at % 16" : "at / 64");
  text += fmt::format(
      "const unsigned {0} = {1} + {2}, {3} = base + {4};\nfloat value = 0.0f;\nif ({0} < (unsigned)({5}) && {3} < (unsigned)({6})) {{\n",
      point, first, row, k, deep, kernel.Number(Points(rows)), kernel.Number(Points(work.k)));
  text += DecodeLoops(printer, rows, point) + DecodeLoops(printer, work.k, k);
  std::string limits;
  for (size_t i = 0; i < work.k_limits.size() && i < work.k.size(); ++i) {
    if (!work.k_limits[i]) continue;
    const ExprPtr inside = Compare("less", Variable(work.k[i].variable, work.k[i].extent), work.k_limits[i]);
    limits += (limits.empty() ? "" : " && ") + printer.Value(inside);
  }
  text += printer.TakeLines();
  const std::string value = printer.Value(operand), lines = printer.TakeLines();
  text += limits.empty() ? lines + "value = " + value + ";\n"
                         : fmt::format("if ({}) {{\n{}value = {};\n}}\n", limits, lines, value);
  return text + fmt::format("}}\n{}[{}][{}] = value;\n}}\n", tile, deep, row);
}

}  // namespace

void WriteCudaPlainContraction(CudaText& text, const Stage& stage, const Contraction& work) {
  CudaKernel kernel(text, stage);
  CudaPrinter printer(kernel);
  const int64_t m = Points(work.m), n = Points(work.n), batch = Points(work.batch);
  if (std::max({m, n, Points(work.k)}) > (int64_t{1} << 32) - kPlainTile)
    throw Unsupported("a product of more than 2^32 rows, columns or terms cannot be written in CUDA");
  const int64_t tiles_m = (m + kPlainTile - 1) / kPlainTile, tiles_n = (n + kPlainTile - 1) / kPlainTile;
  std::string body = fmt::format(
      "__shared__ float left[{1}][{0} + 4];\n__shared__ float right[{1}][{0} + 4];\n"
      "const unsigned tiles_m = {2}, tiles_n = {3}, batch = blockIdx.x / (tiles_m * tiles_n), tile = blockIdx.x % (tiles_m * tiles_n);\n"
      "const unsigned first_m = tile / tiles_n * {0}, first_n = tile % tiles_n * {0};\n"
      "const int over = threadIdx.x / 16, across = threadIdx.x % 16;\n",
      kPlainTile, kPlainDeep, kernel.Number(tiles_m), kernel.Number(tiles_n));
  body += DecodeLoops(printer, work.batch, "batch");
  body += "float sum[4][4];\n#pragma unroll\nfor (int i = 0; i < 16; ++i) sum[i / 4][i % 4] = 0.0f;\n";
  body += fmt::format("for (unsigned base = 0; base < (unsigned)({}); base += {}) {{\n",
                      kernel.Number(Points(work.k)), kPlainDeep);
  body += FillTile(printer, work, work.lhs, work.m, "left", "first_m") +
          FillTile(printer, work, work.rhs, work.n, "right", "first_n");
  body += fmt::format(
      "__syncthreads();\n#pragma unroll\nfor (int k = 0; k < {}; ++k) {{\nfloat a[4], b[4];\n#pragma unroll\n"
      "for (int i = 0; i < 4; ++i) a[i] = left[k][over * 4 + i];\n#pragma unroll\nfor (int i = 0; i < 4; ++i) b[i] = right[k][across + i * 16];\n"
      "#pragma unroll\nfor (int i = 0; i < 16; ++i) sum[i / 4][i % 4] += a[i / 4] * b[i % 4];\n}}\n__syncthreads();\n}}\n",
      kPlainDeep);
  body +=
      "#pragma unroll\nfor (int i = 0; i < 16; ++i) {\nconst unsigned at_m = first_m + over * 4 + i / 4, at_n = first_n + across + i % 4 * 16;\n";
  body += fmt::format("if (at_m < (unsigned)({}) && at_n < (unsigned)({})) {{\n", kernel.Number(m),
                      kernel.Number(n));
  body += DecodeLoops(printer, work.m, "at_m") + DecodeLoops(printer, work.n, "at_n");
  body += NeighbourLoop(printer, work.stores, kNeighbour, 1, false,
                        [](CudaPrinter& inside) { inside.SetResult(0, "sum[i / 4][i % 4]"); });
  body += "}\n}\n";
  kernel.Launch("Product", body, fmt::format("{}L", batch * tiles_m * tiles_n), "256", "256");
}

}  // namespace kevin::search
