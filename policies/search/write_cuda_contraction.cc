// Contractions as tiled products in CUDA. Operands whose offsets are sums of a part by line and a part by term (matrix
// products, convolutions of all kinds) are copied asynchronously; others are evaluated element by element.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/cuda_contraction.h"

namespace kevin::search {
namespace {

std::string ElementOf(const std::string& dtype) {
  return dtype == "float16" ? "__half" : dtype == "bfloat16" ? "__nv_bfloat16" : "float";
}

bool IsLimited(const Contraction& c) {
  return std::any_of(c.k_limits.begin(), c.k_limits.end(),
                     [](const ExprPtr& limit) { return limit != nullptr; });
}

// Bodies of the kernels of one contraction.
class CudaProductWriter {
 public:
  CudaProductWriter(CudaText& text, const Stage& stage, const Contraction& c, CudaTiling tiling)
      : text_(text),
        stage_(stage),
        c_(c),
        tiling_(std::move(tiling)),
        limited_(IsLimited(c)),
        type_(CudaProductType(text.program(), c)),
        element_(ElementOf(type_)) {
    left_ = ReadCudaOperand(text.program(), c.lhs, c.m, c.k, limited_);
    right_ = ReadCudaOperand(text.program(), c.rhs, c.n, c.k, limited_);
    term_extents_ = Extents(c.k);
    for (size_t i = 0; i < c.k_limits.size(); ++i) {
      if (c.k_limits[i]) term_extents_[i] = fmt::format("e{}", c.k[i].variable);
    }
  }

  void Write() {
    if (SuitsCudaRows(text_.program(), c_, left_, right_)) return WriteRows();
    text_.AddDeclarations(kCudaContractionFeed);
    text_.AddDeclarations(tiling_.prelude);
    if (PaysCudaPack(text_.program(), left_, c_.lhs, c_, true)) Pack(left_, c_.lhs, c_.m, true);
    if (PaysCudaPack(text_.program(), right_, c_.rhs, c_, false)) Pack(right_, c_.rhs, c_.n, false);
    const bool may_split = tiling_.split != "1";
    const std::string points = fmt::format("{}L", Points(c_.batch) * Points(c_.m) * Points(c_.n));
    const std::string partial =
        may_split
            ? text_.AddWorkspace("float", fmt::format("({0} > 1 ? {0} * {1} : 1)", tiling_.split, points))
            : "";
    WriteProduct(partial);
    if (may_split) WriteSum(partial, points);
  }

 private:
  // Copies the operand, converted, with its terms (or lines) together in rows of whole 16 bytes; zeros beyond the end.
  void Pack(CudaOperand& operand, const ExprPtr& value, const std::vector<Loop>& lines, bool is_left) {
    const bool terms = is_left || !operand.is_split || operand.terms_together;
    const int64_t width = type_ == "float32" ? 4 : 8;
    const int64_t run = ((terms ? Points(c_.k) : Points(lines)) + width - 1) / width * width;
    const int64_t per_batch = run * (terms ? Points(lines) : Points(c_.k)),
                  count = Points(c_.batch) * per_batch;
    CudaKernel kernel(text_, stage_);
    std::string body = Outer(kernel);
    body += fmt::format("const long count = (long){} * {};\n", text_.Number(Points(c_.batch)),
                        text_.Number(per_batch));
    body += "const long i = blockIdx.x * 256L + threadIdx.x;\nif (i >= count) return;\n";
    body +=
        fmt::format("const int batch = (int)(i / {0}), row = (int)(i % {0} / {1}), at = (int)(i % {1});\n",
                    text_.Number(per_batch), text_.Number(run));
    body += CudaDecoded(c_.batch, "batch", Extents(c_.batch)) + TermCount();
    body += fmt::format("const int l = {}, t = {};\n", terms ? "row" : "at", terms ? "at" : "row");
    body += fmt::format("float value = 0.0f;\nif (l < {} && t < terms) {{\n", text_.Number(Points(lines)));
    body += CudaDecoded(lines, "l", Extents(lines)) + CudaDecoded(c_.k, "t", term_extents_);
    CudaPrinter printer = Printer(kernel);
    const std::string result = printer.Value(value);
    body += printer.lines() + fmt::format("value = {};\n}}\npacked[i] = {}(value);\n", result, element_);
    operand = CudaOperand();
    operand.packed = text_.AddWorkspace(element_, fmt::format("{}L", count));
    operand.packed_batch = per_batch;
    operand.is_split = true, operand.batch = operand.line = operand.term = Int(0);
    operand.terms_together = terms, operand.copy = static_cast<int>(width),
    operand.wide = per_batch > (int64_t{1} << 31) - 1;
    operand.line_stride = terms ? run : 1, operand.term_stride = terms ? 1 : run;
    kernel.AddParameter(element_ + "* __restrict__ packed", operand.packed);
    kernel.Launch("ProductCopy", body, fmt::format("ceil_div({}L, 256)", count), "256", "256");
  }

  void WriteRows() {
    text_.AddDeclarations(kCudaContractionRows);
    constexpr int kLines = 4, kThreads = 256;
    const bool few_left = Points(c_.m) < Points(c_.n);
    const CudaOperand &large = few_left ? right_ : left_, &few = few_left ? left_ : right_;
    const int64_t lines = Points(few_left ? c_.n : c_.m), count = Points(few_left ? c_.m : c_.n);
    const int64_t groups = (lines + kLines - 1) / kLines, step = kThreads * (type_ == "float32" ? 4 : 8);
    const int64_t wanted = 8 * text_.device().multiprocessors / (groups * Points(c_.batch)) + 1;
    const int64_t shares = std::clamp<int64_t>(std::min(wanted, Points(c_.k) / (2 * step)), 1, 1024);
    const std::string points = fmt::format("{}L", Points(c_.batch) * Points(c_.m) * Points(c_.n));
    const std::string partial =
        shares > 1 ? text_.AddWorkspace("float", fmt::format("{} * {}", shares, points)) : "";
    tiling_.split = std::to_string(shares), tiling_.depth = std::to_string(step);
    CudaKernel kernel(text_, stage_);
    std::string body = Outer(kernel) + fmt::format("const int rows = {}, columns = {}, groups = {};\n",
                                                   text_.Number(Points(c_.m)), text_.Number(Points(c_.n)),
                                                   text_.Number(groups));
    body += fmt::format("const int batch = blockIdx.x / groups, first = blockIdx.x % groups * {};\n", kLines);
    body += CudaDecoded(c_.batch, "batch", Extents(c_.batch)) + Terms();
    const auto from = [&](const CudaOperand& operand) {
      return fmt::format("{} + {}", kernel.Buffer(operand.buffer), CudaInteger(text_, operand.batch, true));
    };
    body += fmt::format(
        "const auto store = [&](int line, int other, float result0) {{\nconst int m = {}, n = {};\n{}}};\n",
        few_left ? "other" : "first + line", few_left ? "first + line" : "other",
        Results(kernel, !partial.empty()));
    body += fmt::format(
        "ContractRows<{}, {}>({} + (long)first * {}, {}, {} - first, {}, {}, begin, end, store);\n", kLines,
        count, from(large), text_.Number(*large.line_stride), text_.Number(*large.line_stride),
        few_left ? "columns" : "rows", from(few), text_.Number(*few.line_stride));
    if (!partial.empty()) kernel.AddParameter("float* __restrict__ partial", partial);
    kernel.Launch("ProductRows", body, fmt::format("dim3({}, {})", groups * Points(c_.batch), shares), "256",
                  "256");
    if (!partial.empty()) WriteSum(partial, points);
  }

  void WriteProduct(const std::string& partial) {
    CudaKernel kernel(text_, stage_);
    const std::string body = Outer(kernel) + Body(kernel, !partial.empty());
    if (!partial.empty()) kernel.AddParameter("float* __restrict__ partial", partial);
    const std::string tiles = fmt::format("{}L * ceil_div({}, {}) * ceil_div({}, {})", Points(c_.batch),
                                          Points(c_.m), tiling_.tile_m, Points(c_.n), tiling_.tile_n);
    kernel.Launch("Product", body, fmt::format("dim3({}, {})", tiles, tiling_.split), tiling_.threads,
                  fmt::format("{0}, {1} > 1 ? {1} : 1", tiling_.threads, tiling_.residents), SharedBytes());
  }

  // Adds the shares of the sums, and stores.
  void WriteSum(const std::string& partial, const std::string& points) {
    CudaKernel kernel(text_, stage_);
    const std::string per_batch = text_.Number(Points(c_.m) * Points(c_.n)),
                      columns = text_.Number(Points(c_.n));
    std::string body = Outer(kernel) + fmt::format("const long count = (long){} * {};\n",
                                                   text_.Number(Points(c_.batch)), per_batch);
    body += "const long i = blockIdx.x * 256L + threadIdx.x;\nif (i >= count) return;\n";
    body += "float result0 = partial[i];\n#pragma unroll 8\n";
    body += fmt::format("for (int s = 1; s < {}; ++s) result0 += partial[s * count + i];\n", tiling_.split);
    body += fmt::format("const int batch = (int)(i / {0}), m = (int)(i % {0} / {1}), n = (int)(i % {1});\n",
                        per_batch, columns);
    body += CudaDecoded(c_.batch, "batch", Extents(c_.batch)) + Stores(kernel);
    kernel.AddParameter("const float* __restrict__ partial", partial);
    text_.AddLine(fmt::format("if ({} > 1) {{", tiling_.split));
    kernel.Launch("ProductSum", body, fmt::format("ceil_div({}, 256)", points), "256", "256");
    text_.AddLine("}");
  }

  // Variables of the repetitions around the stage.
  std::string Outer(CudaKernel& kernel) const {
    std::string body;
    for (const auto& [id, name] : text_.repeat_variables()) {
      body += fmt::format("const int v{} = {};\n", id, kernel.RepeatVariable(id));
    }
    return body;
  }

  std::string Body(CudaKernel& kernel, bool may_split) {
    std::string body =
        fmt::format("constexpr int kTileM = {}, kTileN = {};\n", tiling_.tile_m, tiling_.tile_n);
    body += fmt::format("const int rows = {}, columns = {};\n", text_.Number(Points(c_.m)),
                        text_.Number(Points(c_.n)));
    body += "const int tiles_m = (rows + kTileM - 1) / kTileM, tiles_n = (columns + kTileN - 1) / kTileN;\n";
    body += "const int batch = blockIdx.x / (tiles_m * tiles_n), tile = blockIdx.x % (tiles_m * tiles_n);\n";
    body += CudaDecoded(c_.batch, "batch", Extents(c_.batch));
    body +=
        "// Blocks go through the tiles in bands, so that those at work together share operands in the cache.\n";
    body +=
        "const int band = tile / (8 * tiles_n), within = tile % (8 * tiles_n), height = min(8, tiles_m - band * 8);\n";
    body += "const int m0 = (band * 8 + within % height) * kTileM, n0 = within / height * kTileN;\n";
    body += Terms() + Operand(kernel, "left", "rows", left_, c_.lhs, c_.m);
    body += Operand(kernel, "right", "columns", right_, c_.rhs, c_.n);
    body += "const auto store = [&](int m, int n, float result0) {\n";
    body += Results(kernel, may_split) + "};\n";
    return body + fmt::format("Contract<{}, {}, {}>(left, right, m0, n0, begin, end, store);\n", tiling_.math,
                              tiling_.stages, IsDown());
  }

  std::vector<std::string> Extents(const std::vector<Loop>& loops) const {
    std::vector<std::string> extents;
    for (const Loop& loop : loops) extents.push_back("(" + text_.Number(loop.extent) + ")");
    return extents;
  }

  // The number of terms of the batch.
  std::string TermCount() const {
    std::string body, count = limited_ ? "1" : text_.Number(Points(c_.k));
    for (size_t i = 0; i < c_.k.size() && limited_; ++i) {
      count += " * " + term_extents_[i];
      if (i >= c_.k_limits.size() || !c_.k_limits[i]) continue;
      body +=
          fmt::format("const int e{} = {};\n", c_.k[i].variable, CudaInteger(text_, c_.k_limits[i], false));
    }
    return body + fmt::format("const int terms = {};\n", count);
  }
  // And the block's share of them.
  std::string Terms() const {
    return TermCount() +
           fmt::format("const int share = ((terms + {0} - 1) / {0} + {1} - 1) / {1} * {1};\n", tiling_.split,
                       tiling_.depth) +
           "const int begin = min((int)blockIdx.y * share, terms), end = min(begin + share, terms);\n";
  }

  std::string Operand(CudaKernel& kernel, const std::string& name, const std::string& limit,
                      const CudaOperand& operand, const ExprPtr& value, const std::vector<Loop>& lines) {
    return operand.is_split ? SplitOperand(kernel, name, limit, operand, lines)
                            : OtherOperand(kernel, name, limit, value, lines);
  }

  std::string SplitOperand(CudaKernel& kernel, const std::string& name, const std::string& limit,
                           const CudaOperand& o, const std::vector<Loop>& lines) {
    const bool is_packed = !o.packed.empty();
    const std::string own =
        is_packed ? element_ : ElementOf(text_.program().buffers[static_cast<size_t>(o.buffer)].dtype);
    const char* const index = o.wide ? "long" : "int";
    const bool flat_line = o.line_stride && o.conditions.empty(),
               flat_term = o.term_stride && o.conditions.empty();
    std::vector<std::string> line(4, "0"), term(4, "0");
    std::string inside;
    for (size_t i = 0; i < o.conditions.size(); ++i) {
      const CudaOperandCondition& condition = o.conditions[i];
      line[i + 1] = CudaInteger(text_, condition.line, false);
      term[i + 1] = CudaInteger(text_, condition.term, false);
      const std::string sum = fmt::format("line.{0} + term.{0}", static_cast<char>('a' + i));
      inside += inside.empty() ? "" : " && ";
      inside += condition.range > 0
                    ? fmt::format("(unsigned)({}) < (unsigned){}", sum, text_.Number(condition.range))
                    : sum + " >= 0";
    }
    if (inside.empty()) inside = "true";
    line[0] = flat_line ? fmt::format("({})l * {}", index, text_.Number(*o.line_stride))
                        : CudaInteger(text_, o.line, o.wide);
    term[0] =
        flat_term ? fmt::format("t * {}", text_.Number(*o.term_stride)) : CudaInteger(text_, o.term, false);
    const std::string from = name + "_from";
    const bool direct = own != element_ || (type_ != "float32" && o.copy == 1);
    const std::string load =
        fmt::format("{0} ? {1}(float({2}[line.offset + term.offset])) : {1}(0.0f)", inside, element_, from);
    if (is_packed) kernel.AddParameter(fmt::format("const {}* __restrict__ {}_packed", own, name), o.packed);
    const std::string base =
        is_packed ? fmt::format("{}_packed + (long)batch * {}", name, text_.Number(o.packed_batch))
                  : fmt::format("{} + {}", kernel.Buffer(o.buffer), CudaInteger(text_, o.batch, true));
    const std::string text = fmt::format("const {}* const {} = {};\n", own, from, base);
    return text + Source(name, limit,
                         {o.terms_together, direct ? 1 : o.copy, !flat_term, direct, !o.conditions.empty()},
                         index, (flat_line ? "" : CudaDecoded(lines, "l", Extents(lines))) + Returned(line),
                         (flat_term ? "" : CudaDecoded(c_.k, "t", term_extents_)) + Returned(term),
                         fmt::format("return {};\n", direct ? load : inside),
                         own == element_ ? from : "nullptr");
  }

  // Another expression: the loop variables travel in the parts, four of each.
  std::string OtherOperand(CudaKernel& kernel, const std::string& name, const std::string& limit,
                           const ExprPtr& value, const std::vector<Loop>& lines) {
    const auto pack = [](const std::vector<Loop>& loops) {
      std::vector<std::string> names;
      for (const Loop& loop : loops) names.push_back(fmt::format("v{}", loop.variable));
      names.resize(4, "0");
      return Returned(names);
    };
    const auto unpack = [](const std::vector<Loop>& loops, const char* from) {
      constexpr const char* kFields[] = {"offset", "a", "b", "c"};
      std::string text;
      for (size_t i = 0; i < loops.size(); ++i)
        text += fmt::format("const int v{} = {}.{};\n", loops[i].variable, from, kFields[i]);
      return text;
    };
    CudaPrinter printer = Printer(kernel);
    const std::string result = printer.Value(value);
    return Source(name, limit, {PrefersTerms(value, lines), 1, true, true, false}, "int",
                  CudaDecoded(lines, "l", Extents(lines)) + pack(lines),
                  CudaDecoded(c_.k, "t", term_extents_) + pack(c_.k),
                  unpack(lines, "line") + unpack(c_.k, "term") + printer.lines() +
                      fmt::format("return {}({});\n", element_, result),
                  "nullptr");
  }

  static std::string Returned(const std::vector<std::string>& fields) {
    return fmt::format("return {{{}}};\n", fmt::join(fields, ", "));
  }

  struct SourceKind {
    bool terms;
    int copy;
    bool table, direct, guarded;
  };
  std::string Source(const std::string& name, const std::string& limit, const SourceKind& kind,
                     const std::string& index, const std::string& line, const std::string& term,
                     const std::string& value, const std::string& from) const {
    return fmt::format("const auto {} = ContractOperand<{}, {}, {}, {}, {}, {}>((const {}*){}, {},\n", name,
                       element_, kind.terms, kind.copy, kind.table, kind.direct, kind.guarded, element_, from,
                       limit) +
           fmt::format(
               "[=](int l) -> ContractLine<{0}> {{\n{1}}},\n[=](int t) -> ContractTerm {{\n{2}}},\n"
               "[=](const ContractLine<{0}>& line, const ContractTerm& term) {{\n{3}}});\n",
               index, line, term, value);
  }

  // Whether neighbours in memory are terms, by the first load with a unit stride.
  bool PrefersTerms(const ExprPtr& value, const std::vector<Loop>& lines) const {
    for (const Expr* node : Nodes(value)) {
      if (node->op != "load") continue;
      if (!lines.empty() && StrideOf(node->args[0], lines.back().variable) == 1) return false;
      if (!c_.k.empty() && StrideOf(node->args[0], c_.k.back().variable) == 1) return true;
    }
    return false;
  }

  CudaPrinter Printer(CudaKernel& kernel) const {
    CudaPrinter printer(kernel);
    for (const auto& [id, name] : text_.repeat_variables()) printer.SetVariable(id, fmt::format("v{}", id));
    for (const std::vector<Loop>* loops : {&c_.batch, &c_.m, &c_.n, &c_.k}) {
      for (const Loop& loop : *loops) printer.SetVariable(loop.variable, fmt::format("v{}", loop.variable));
    }
    printer.SetResult(0, "result0");
    return printer;
  }

  // For the point (batch, m, n): the share's sum, or the stores.
  std::string Results(CudaKernel& kernel, bool may_split) const {
    std::string body;
    if (may_split) {
      body += fmt::format("if constexpr ({} > 1) {{\n", tiling_.split);
      body += fmt::format(
          "partial[((long)blockIdx.y * {} + batch) * ((long)rows * columns) + (long)m * columns + n] = result0;\n",
          text_.Number(Points(c_.batch)));
      body += "return;\n}\n";
    }
    return body + Stores(kernel);
  }

  std::string Stores(CudaKernel& kernel) const {
    std::string body = CudaDecoded(c_.m, "m", Extents(c_.m)) + CudaDecoded(c_.n, "n", Extents(c_.n));
    CudaPrinter printer = Printer(kernel);
    for (const Store& store : c_.stores) {
      const std::string guard = store.guard ? printer.Value(store.guard) : "";
      body += printer.TakeLines();
      CudaPrinter inner = printer;
      const std::string value = inner.Value(store.value), offset = inner.Value(store.offset);
      const std::string statements =
          inner.TakeLines() + StoreText(kernel, store.buffer, offset, value) + "\n";
      body += store.guard ? fmt::format("if ({}) {{\n{}}}\n", guard, statements)
                          : fmt::format("{{\n{}}}\n", statements);
    }
    return body;
  }

  // Whether neighbours in m are neighbours in memory, and those in n are not.
  bool IsDown() const {
    if (c_.stores.empty() || Points(c_.m) == 1) return false;
    const ExprPtr& offset = c_.stores[0].offset;
    return StrideOf(offset, c_.m.back().variable) == 1 &&
           (c_.n.empty() || StrideOf(offset, c_.n.back().variable) != 1);
  }

  std::string SharedBytes() const {
    const int bytes = type_ == "float32" ? 4 : 2, pad = 16 / bytes;
    const auto slice = [&](const std::string& lines, bool terms) {
      return terms ? fmt::format("{} * ({} + {})", lines, tiling_.depth, pad)
                   : fmt::format("{} * ({} + 8)", tiling_.depth, lines);
    };
    const bool left_terms = left_.is_split ? left_.terms_together : PrefersTerms(c_.lhs, c_.m);
    const bool right_terms = right_.is_split ? right_.terms_together : PrefersTerms(c_.rhs, c_.n);
    return fmt::format("max({} * ({} + {}) * {} + {} * 64, {} * ({} + 8) * 4)", tiling_.stages,
                       slice(tiling_.tile_m, left_terms), slice(tiling_.tile_n, right_terms), bytes,
                       tiling_.depth, tiling_.tile_m, tiling_.tile_n);
  }

  CudaText& text_;
  const Stage& stage_;
  const Contraction& c_;
  CudaTiling tiling_;
  bool limited_ = false;
  std::string type_, element_;
  CudaOperand left_, right_;
  std::vector<std::string> term_extents_;
};

bool SuitsTiles(const Program& program, const Contraction& c) {
  constexpr int64_t kMost = (int64_t{1} << 31) - 1024;
  if (std::max({Points(c.batch), Points(c.m), Points(c.n), Points(c.k)}) > kMost) return false;
  if (Points(c.batch) * ((Points(c.m) + 31) / 32) * ((Points(c.n) + 31) / 32) > kMost) return false;
  for (const auto& [operand, lines] : {std::pair(c.lhs, c.m), std::pair(c.rhs, c.n)}) {
    if (ReadCudaOperand(program, operand, lines, c.k, IsLimited(c)).is_split) continue;
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

bool WriteCudaContraction(CudaText& text, const Stage& stage, const Contraction& work) {
  if (!SuitsTiles(text.program(), work)) return false;
  const CudaTiling tiling = CudaTilingOf(text, work);
  CudaProductWriter(text, stage, work, tiling).Write();
  return true;
}

}  // namespace kevin::search
