// Contractions as tiled products in CUDA. Operands whose offsets are sums of a part by line and a part by term (matrix
// products, convolutions of all kinds) are copied asynchronously; others are evaluated element by element.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/cuda_product_writer.h"

namespace kevin::search {
namespace {

bool CudaIsLimited(const Contraction& c) {
  return std::any_of(c.k_limits.begin(), c.k_limits.end(),
                     [](const ExprPtr& limit) { return limit != nullptr; });
}

}  // namespace

std::string CudaElementOf(const std::string& dtype) {
  return dtype == "float16" ? "__half" : dtype == "bfloat16" ? "__nv_bfloat16" : "float";
}

CudaProductWriter::CudaProductWriter(CudaText& text, const Stage& stage, const Contraction& c,
                                     CudaTiling tiling, CudaProductGroup group)
    : text_(text),
      stage_(stage),
      c_(c),
      tiling_(std::move(tiling)),
      group_(std::move(group)),
      limited_(CudaIsLimited(c)),
      type_(CudaProductType(text.program(), c)),
      element_(CudaElementOf(type_)) {
  left_ = ReadCudaOperand(text.program(), c.lhs, c.m, c.k, limited_);
  right_ = ReadCudaOperand(text.program(), c.rhs, c.n, c.k, limited_);
  term_extents_ = Extents(c.k);
  for (size_t i = 0; i < c.k_limits.size(); ++i) {
    if (c.k_limits[i]) term_extents_[i] = fmt::format("e{}", c.k[i].variable);
  }
}

void CudaProductWriter::Write() {
  if (SuitsCudaRows(text_.program(), c_, left_, right_)) return WriteRows();
  if (tiling_.wgmma) return WriteWgmma();
  text_.AddDeclarations(kCudaContractionFeed);
  text_.AddDeclarations(tiling_.prelude);
  if (PaysCudaPack(text_.program(), left_, c_.lhs, c_, true)) Pack(left_, c_.lhs, c_.m, true);
  if (PaysCudaPack(text_.program(), right_, c_.rhs, c_, false)) Pack(right_, c_.rhs, c_.n, false);
  const bool may_split = tiling_.splits;
  const std::string points = fmt::format("{}L", Points(c_.batch) * Points(c_.m) * Points(c_.n));
  const std::string partial =
      may_split ? text_.AddWorkspace("float", fmt::format("({0} > 1 ? {0} * {1} : 1)", tiling_.split, points))
                : "";
  WriteProduct(partial);
  if (may_split) WriteSum(partial, points);
}

void CudaProductWriter::WriteProduct(const std::string& partial) {
  CudaKernel kernel(text_, stage_);
  const std::string body = Outer(kernel) + Body(kernel, !partial.empty());
  if (!partial.empty()) kernel.AddParameter("float* __restrict__ partial", partial);
  std::string tiles =
      fmt::format("{}L * ceil_div({}, {}) * ceil_div({}, {})", Points(c_.batch), Points(c_.m), tiling_.tile_m,
                  Points(c_.n), group_.is_paired ? "(" + tiling_.tile_n + " / 2)" : tiling_.tile_n);
  if (!group_.members.empty() && !group_.is_paired) tiles += fmt::format(" * {}", group_.members.size());
  kernel.Launch("Product", body, fmt::format("dim3({}, {})", tiles, tiling_.split), tiling_.threads,
                fmt::format("{0}, {1} > 1 ? {1} : 1", tiling_.threads, tiling_.residents), SharedBytes());
}

// Adds the shares of the sums, and stores.
void CudaProductWriter::WriteSum(const std::string& partial, const std::string& points) {
  CudaKernel kernel(text_, stage_);
  const int64_t across = swapped_ ? Points(c_.m) : windows_ ? windows_->Positions() : Points(c_.n);
  const std::string split =
      tiling_.split_is_knob && text_.shares() ? Hole(tiling_.split) : tiling_.split_body;
  const std::string per_batch = text_.Number((swapped_ ? Points(c_.n) : Points(c_.m)) * across),
                    columns = text_.Number(across);
  std::string body = Outer(kernel) + fmt::format("const long count = (long){} * {};\n",
                                                 text_.Number(Points(c_.batch)), per_batch);
  body += "const long i = blockIdx.x * 256L + threadIdx.x;\nif (i >= count) return;\n";
  body += "float result0 = partial[i];\n#pragma unroll 8\n";
  body += fmt::format("for (int s = 1; s < {}; ++s) result0 += partial[s * count + i];\n", split);
  body += fmt::format("const int batch = (int)(i / {0}), {2} = (int)(i % {0} / {1}), {3} = (int)(i % {1});\n",
                      per_batch, columns, swapped_ ? "n" : "m", swapped_ ? "m" : "n");
  body += CudaDecoded(c_.batch, "batch", Extents(c_.batch)) + Stores(kernel);
  kernel.AddParameter("const float* __restrict__ partial", partial);
  if (tiling_.split_is_knob) text_.AddLine(fmt::format("if ({} > 1) {{", tiling_.split));
  kernel.Launch("ProductSum", body, fmt::format("ceil_div({}, 256)", points), "256", "256");
  if (tiling_.split_is_knob) text_.AddLine("}");
}

// Variables of the repetitions around the stage.
std::string CudaProductWriter::Outer(CudaKernel& kernel) const {
  std::string body;
  for (const auto& [id, name] : text_.repeat_variables()) {
    body += fmt::format("const int v{} = {};\n", id, kernel.RepeatVariable(id));
  }
  return body;
}

std::string CudaProductWriter::Body(CudaKernel& kernel, bool may_split) {
  std::string body = fmt::format("constexpr int kTileM = {}, kTileN = {};\n", tiling_.tile_m, tiling_.tile_n);
  body += group_.members.empty() ? fmt::format("const int rows = {}, columns = {};\n",
                                               text_.Number(Points(c_.m)), text_.Number(Points(c_.n)))
                                 : GroupColumns();
  body += Place();
  body += Terms() + Operand(kernel, "left", "rows", left_, c_.lhs, c_.m);
  body += Operand(kernel, "right", "columns", right_, c_.rhs, c_.n);
  body += fmt::format("const auto store = [&](int m, int n, float result0{}) {{\n",
                      group_.is_paired ? ", float result1" : "");
  body += (group_.members.empty() ? Results(kernel, may_split) : GroupStores(kernel)) + "};\n";
  return body + fmt::format("Contract<{}, {}, {}, {}>(left, right, m0, n0, begin, end, store);\n",
                            tiling_.math, tiling_.stages, IsCudaDown(c_), group_.is_paired);
}

// The block's batch and tile.
std::string CudaProductWriter::Place() const {
  std::string body;
  body += "const int tiles_m = (rows + kTileM - 1) / kTileM, tiles_n = (columns + kTileN - 1) / kTileN;\n";
  if (limited_) {
    body += fmt::format(
        "// The batch has the phases of strides, whose results lie between each other: those of a tile run together.\n"
        "const int batch = blockIdx.x % {0}, tile = blockIdx.x / {0};\n",
        text_.Number(Points(c_.batch)));
  } else {
    body += "const int batch = blockIdx.x / (tiles_m * tiles_n), tile = blockIdx.x % (tiles_m * tiles_n);\n";
  }
  body += CudaDecoded(c_.batch, "batch", Extents(c_.batch));
  body +=
      "// Blocks go through the tiles in bands, so that those at work together share operands in the cache.\n";
  body +=
      "const int band = tile / (8 * tiles_n), within = tile % (8 * tiles_n), height = min(8, tiles_m - band * 8);\n";
  body += "const int m0 = (band * 8 + within % height) * kTileM, n0 = within / height * kTileN;\n";
  return body;
}

std::vector<std::string> CudaProductWriter::Extents(const std::vector<Loop>& loops) const {
  std::vector<std::string> extents;
  for (const Loop& loop : loops) extents.push_back("(" + text_.Number(loop.extent) + ")");
  return extents;
}

// The number of terms of the batch.
std::string CudaProductWriter::TermCount() const {
  std::string body, count = limited_ ? "1" : text_.Number(Points(c_.k));
  for (size_t i = 0; i < c_.k.size() && limited_; ++i) {
    count += " * " + term_extents_[i];
    if (i >= c_.k_limits.size() || !c_.k_limits[i]) continue;
    body += fmt::format("const int e{} = {};\n", c_.k[i].variable, CudaInteger(text_, c_.k_limits[i], false));
  }
  return body + fmt::format("const int terms = {};\n", count);
}

// And the block's share of them.
std::string CudaProductWriter::Terms() const {
  return TermCount() +
         fmt::format("const int share = ((terms + {0} - 1) / {0} + {1} - 1) / {1} * {1};\n",
                     tiling_.split_body, tiling_.depth) +
         "const int begin = min((int)blockIdx.y * share, terms), end = min(begin + share, terms);\n";
}

CudaPrinter CudaProductWriter::Printer(CudaKernel& kernel) const {
  CudaPrinter printer(kernel);
  for (const auto& [id, name] : text_.repeat_variables()) printer.SetVariable(id, fmt::format("v{}", id));
  for (const std::vector<Loop>* loops : {&c_.batch, &c_.m, &c_.n, &c_.k}) {
    for (const Loop& loop : *loops) printer.SetVariable(loop.variable, fmt::format("v{}", loop.variable));
  }
  printer.SetResult(0, "result0");
  printer.SetResult(1, "result1");
  return printer;
}

// For the point (batch, m, n): the share's sum, or the stores.
std::string CudaProductWriter::Results(CudaKernel& kernel, bool may_split) const {
  std::string body;
  if (may_split) {
    if (tiling_.split_is_knob) body += fmt::format("if constexpr ({} > 1) {{\n", tiling_.split);
    body += fmt::format(
        "partial[((long)blockIdx.y * {} + batch) * ((long)rows * columns) + (long)m * columns + n] = result0;\n",
        text_.Number(Points(c_.batch)));
    if (!tiling_.split_is_knob) return body;
    body += "return;\n}\n";
  }
  return body + Stores(kernel);
}

std::string CudaProductWriter::Stores(CudaKernel& kernel) const { return StoresOf(kernel, c_.stores); }

std::string CudaProductWriter::StoresOf(CudaKernel& kernel, const std::vector<Store>& stores) const {
  std::string body = CudaDecoded(c_.m, "m", Extents(c_.m));
  body += windows_ ? WindowsDecoded("n", 1) : CudaDecoded(c_.n, "n", Extents(c_.n));
  CudaPrinter printer = Printer(kernel);
  for (const Store& store : stores) {
    const std::string guard = store.guard ? printer.Value(store.guard) : "";
    body += printer.TakeLines();
    CudaPrinter inner = printer;
    const std::string value = inner.Value(store.value), offset = inner.Value(store.offset);
    const std::string statements = inner.TakeLines() + StoreText(kernel, store.buffer, offset, value) + "\n";
    body += store.guard ? fmt::format("if ({}) {{\n{}}}\n", guard, statements)
                        : fmt::format("{{\n{}}}\n", statements);
  }
  return body;
}

std::string CudaProductWriter::SharedBytes() const {
  const int bytes = type_ == "float32" ? 4 : 2, pad = 16 / bytes;
  const auto slice = [&](const std::string& lines, bool terms) {
    return terms ? fmt::format("{} * ({} + {})", lines, tiling_.depth, pad)
                 : fmt::format("{} * ({} + 8)", tiling_.depth, lines);
  };
  const bool left_terms = left_.is_split ? left_.terms_together : PrefersTerms(c_.lhs, c_.m);
  const bool right_terms = right_.is_split ? right_.terms_together : PrefersTerms(c_.rhs, c_.n);
  return fmt::format("max({} * ({} + {}) * {} + {} * 64, {} * ({} + 8) * {})", tiling_.stages,
                     slice(tiling_.tile_m, left_terms), slice(tiling_.tile_n, right_terms), bytes,
                     tiling_.depth, tiling_.tile_m, tiling_.tile_n,
                     tiling_.shares == "1" ? "4" : "4 * " + tiling_.shares);
}

namespace {

bool CudaSuitsTiles(const Program& program, const Contraction& c) {
  // The kernels count in 32 bits, beyond the last term by a share of the sum, whose tiles are whole.
  constexpr int64_t kMost = (int64_t{1} << 31) - (1 << 24);
  if (std::max({Points(c.batch), Points(c.m), Points(c.n), Points(c.k)}) > kMost) return false;
  if (Points(c.batch) * ((Points(c.m) + 31) / 32) * ((Points(c.n) + 31) / 32) > kMost) return false;
  for (const auto& [operand, lines] : {std::pair(c.lhs, c.m), std::pair(c.rhs, c.n)}) {
    if (ReadCudaOperand(program, operand, lines, c.k, CudaIsLimited(c)).is_split) continue;
    if (lines.size() > 4 || c.k.size() > 4) return false;
  }
  return true;
}

}  // namespace

std::string CudaDecoded(const std::vector<Loop>& loops, const std::string& flat,
                        const std::vector<std::string>& extents) {
  if (loops.empty()) return "";
  std::string text, rest = flat;
  for (size_t i = loops.size(); --i > 0;) {
    const int id = loops[i].variable;
    text += fmt::format("const int v{0} = {1} % {2}, r{0} = {1} / {2};\n", id, rest, extents[i]);
    rest = fmt::format("r{}", id);
  }
  return text + fmt::format("const int v{} = {};\n", loops[0].variable, rest);
}

size_t WriteCudaProductGroup(CudaText& text, size_t at) {
  const Program& program = text.program();
  CudaProductGroup group = FindCudaGroup(program, text.task(), at);
  if (group.members.empty() || text.sharing() == CudaSharing::kForms) return 0;
  Stage stage = program.stages[at];
  auto& work = std::get<Contraction>(stage.work);
  const size_t count = group.members.size();
  const CudaTiling tiling = CudaTilingOf(text, work, static_cast<int64_t>(count));
  if (tiling.shares == "1") return 0;
  work.stores = group.joint;
  if (!group.is_paired) {
    work.stores.clear();
    for (const Contraction& one : group.members)
      work.stores.insert(work.stores.end(), one.stores.begin(), one.stores.end());
  }
  CudaProductWriter(text, stage, work, tiling, std::move(group)).Write();
  return count;
}

bool WriteCudaContraction(CudaText& text, const Stage& stage, const Contraction& work) {
  if (!CudaSuitsTiles(text.program(), work)) return false;
  const CudaTiling tiling = CudaTilingOf(text, work);
  CudaProductWriter(text, stage, work, tiling).Write();
  return true;
}

}  // namespace kevin::search
