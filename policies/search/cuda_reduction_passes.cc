// The passes of a reduction over its inner loops, and how the results of threads, blocks and kernels come together.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/cuda_reduction_writer.h"

namespace kevin::search {
namespace {

constexpr int64_t kTermsOfRun = 16;

}  // namespace

CudaFold::CudaFold(const Accumulator& a, bool is_wide) {
  const bool is_float = a.value->type == Type::kFloat;
  type = is_float ? "float" : "long";
  std::string joined;
  if (a.op == "sum") start = is_float ? "0.0f" : "0", joined = "a + b";
  if (a.op == "product") start = is_float ? "1.0f" : "1", joined = "a * b";
  if (a.op == "max") start = is_float ? "-Infinity()" : "-9223372036854775807L", joined = "NanMax(a, b)";
  if (a.op == "min") start = is_float ? "Infinity()" : "9223372036854775807L", joined = "NanMin(a, b)";
  if (a.op == "any") type = "int", start = "0", joined = "a | b";
  if (a.op == "all") type = "int", start = "1", joined = "a & b";
  if (a.op == "argmax" || a.op == "argmin") {
    const bool is_max = a.op == "argmax";
    is_place = true;
    type = is_wide ? "ExtremeOf<long>" : "Extreme";
    start = fmt::format("{}{{{}Infinity(), {}}}", type, is_max ? "-" : "",
                        is_wide ? "9223372036854775807L" : "0x7fffffff");
    joined = is_max ? "Higher(a, b)" : "Lower(a, b)";
  }
  if (joined.empty()) throw Unsupported("a reduction `" + a.op + "` has no text in CUDA");
  combine = fmt::format("[]({0} a, {0} b) {{ return {1}; }}", type, joined);
  update = joined;
}

std::string CudaFold::Add(const std::string& name, const std::string& value, const std::string& place) const {
  const std::string term = is_place        ? fmt::format("{}{{float({}), {}}}", type, value, place)
                           : type == "int" ? fmt::format("int({} != 0)", value)
                                           : fmt::format("{}({})", type, value);
  return fmt::format("{{\nconst {0} a = {1}, b = {2};\n{1} = {3};\n}}\n", type, name, term, update);
}

void CudaReductionWriter::FindLoads() {
  std::vector<std::vector<CudaLoad>> passes = PassLoads(work_, plan_.columns);
  std::map<std::string, int> uses;
  for (const std::vector<CudaLoad>& pass : passes) {
    for (const CudaLoad& load : pass) ++uses[load.load->key];
  }
  std::vector<CudaLoad> kept;
  std::set<std::string> is_kept, is_inner;
  for (const auto& [key, count] : uses) is_inner.insert(key);
  for (std::vector<CudaLoad>& pass : passes) {
    std::vector<CudaLoad> own;
    for (const CudaLoad& load : pass) {
      if (plan_.keep == Keep::kNo || uses[load.load->key] < 2) {
        own.push_back(load);
      } else if (is_kept.insert(load.load->key).second) {
        kept.push_back(load);
      }
    }
    pass_loads_.push_back(own);
  }
  if (!kept.empty()) kept_.emplace_back(*kernel_, kept, kNeighbour, plan_.width, "[u]", "[kEach]");
  std::vector<ExprPtr> exprs;
  for (const Accumulator& accumulator : work_.accumulators) exprs.push_back(accumulator.value);
  for (const std::vector<Store>* stores : {&work_.outer_stores, &work_.inner_stores}) {
    for (const Store& store : *stores) exprs.insert(exprs.end(), {store.value, store.guard, store.offset});
  }
  std::vector<CudaLoad> rows;
  for (const CudaLoad& load : LoadsOf(exprs)) {
    if (!is_inner.count(load.load->key) && !DependsOnPass(load)) rows.push_back(load);
  }
  row_loads_.emplace(*kernel_, rows, kNeighbour, count_, "", "");
}

bool CudaReductionWriter::DependsOnPass(const CudaLoad& load) const {
  for (const ExprPtr& part : {load.load->args[0], load.condition}) {
    for (const Expr* node : Nodes(part)) {
      if (node->op == "result") return true;
      if (node->op != "variable") continue;
      if (node->id == kNeighbour && !plan_.columns) return true;
      for (const Loop& loop : work_.inner) {
        if (node->id == loop.variable) return true;
      }
    }
  }
  return false;
}

void CudaReductionWriter::BindAll(CudaPrinter& printer, const CudaLoads& own) const {
  if (plan_.columns) row_loads_->Bind(printer, "w");
  own.Bind(printer, "w");
  if (!kept_.empty()) kept_[0].Bind(printer, "w");
  BindResults(printer, plan_.columns ? "w" : "0");
}

void CudaReductionWriter::BindResults(CudaPrinter& printer, const std::string& t) const {
  for (const Accumulator& a : work_.accumulators) {
    const CudaFold fold = FoldOf(a);
    const std::string name = fmt::format("r{}[{}]", a.result, t);
    printer.SetResult(a.result, fold.is_place        ? "long(" + name + ".place)"
                                : fold.type == "int" ? "(" + name + " != 0)"
                                                     : name);
  }
}

std::string CudaReductionWriter::StepPass(int step) {
  std::string text;
  for (const Accumulator& a : work_.accumulators) {
    if (a.step != step) continue;
    const CudaFold fold = FoldOf(a);
    text += fmt::format("{} r{}[{}];\n#pragma unroll\nfor (int t = 0; t < {}; ++t) r{}[t] = {};\n", fold.type,
                        a.result, count_, count_, a.result, fold.start);
  }
  return text + Pass(step);
}

std::string CudaReductionWriter::DecodeInner(CudaPrinter& printer) const {
  if (!IsNested()) return DecodeLoops(printer, work_.inner, "i");
  for (size_t l = 0; l < Unrolled(); ++l) printer.SetVariable(work_.inner[l].variable, fmt::format("n{}", l));
  printer.SetVariable(work_.inner[Unrolled()].variable, "u");
  if (plan_.across) printer.SetVariable(work_.inner.back().variable, "lane");
  return "";
}

std::string CudaReductionWriter::Nested(const std::string& body) const {
  std::string heads, tails;
  std::string base = "0";
  for (size_t l = 0; l < Unrolled(); ++l) {
    heads += fmt::format("for (int n{0} = 0; n{0} < {1}; ++n{0}) {{\n", l, work_.inner[l].extent);
    base = fmt::format("({} * {} + n{})", base, work_.inner[l].extent, l);
    tails += "}\n";
  }
  return heads + fmt::format("const unsigned base = {} * {};\n", base, work_.inner[Unrolled()].extent) +
         body + tails;
}

std::string CudaReductionWriter::EachHead() const {
  if (plan_.across)
    return fmt::format(
        "#pragma unroll\nfor (int u = 0; u < kEach; ++u) {{\nconst unsigned i = (base + u) * {0} + lane;\nif (lane < {0}) {{\n",
        work_.inner.back().extent);
  if (plan_.nested)
    return "#pragma unroll\nfor (int u = 0; u < kEach; ++u) {\nconst unsigned i = base + u;\n{\n";
  const std::string guard =
      whole_ && plan_.cluster == 1 && !has_group_knob_ && is_exact_ ? "{\n" : "if (i < end) {\n";
  return fmt::format(
      "#pragma unroll\nfor (int u = 0; u < kEach; ++u) {{\nconst {} i = base + u * kGroup;\n{}", PackType(),
      guard);
}

std::string CudaReductionWriter::Pass(int pass) {
  const bool is_last = pass == steps_;
  const std::vector<CudaLoad>& wanted =
      pass_loads_[static_cast<size_t>(is_last ? pass_loads_.size() - 1 : static_cast<size_t>(pass))];
  CudaLoads own(*kernel_, wanted, kNeighbour, plan_.width, "[u]", "[kEach]");
  const bool loads_kept = !kept_.empty() && !has_kept_,
             from_shared = !kept_.empty() && has_kept_ && plan_.keep == Keep::kShared;
  has_kept_ |= !kept_.empty();
  std::string body = own.Declarations();
  if (!kept_.empty() && plan_.keep == Keep::kShared) body += kept_[0].Declarations();
  if (own.size() > 0 || loads_kept || from_shared) {
    CudaPrinter printer = *printer_;
    body += EachHead() + DecodeInner(printer);
    if (loads_kept) body += kept_[0].Statements(printer, true);
    if (from_shared) body += kept_[0].Copies(true, [&](size_t load) { return SharedAt(load); });
    // Single elements share what moves with their neighbours: it stays in the caches.
    const bool shares = plan_.width == 1 && (plan_.columns || plan_.across);
    body += own.Statements(printer, (is_last || steps_ == 1) && !shares) + "}\n}\n";
  }
  CudaPrinter printer = *printer_;
  if (!is_last) body += BeginRuns(pass);
  body += EachHead() + DecodeInner(printer);
  if (loads_kept && plan_.keep == Keep::kShared)
    body += kept_[0].Copies(false, [&](size_t load) { return SharedAt(load); });
  const std::vector<Store> none;
  body += NeighbourLoop(
      printer, is_last ? work_.inner_stores : none, kNeighbour, plan_.width, true,
      [&](CudaPrinter& inside) { BindAll(inside, own); },
      [&](CudaPrinter& inside) { return is_last ? "" : Updates(inside, pass); });
  body += "}\n" + (is_last ? "" : EndRun(pass)) + "}\n";
  if (is_last) body = "if (is_there) {\n" + body + "}\n";
  if (IsNested()) return Nested(body);
  if (whole_) return fmt::format("{{\nconst {} base = begin + lane;\n{}}}\n", PackType(), body);
  return fmt::format("for ({} base = begin + lane; base < end; base += kGroup * kEach) {{\n{}}}\n",
                     PackType(), body);
}

std::string CudaReductionWriter::SharedAt(size_t load) const {
  int64_t before = 0;
  for (size_t i = 0; i < load; ++i) before += (PackBytes(i) * PerBlock() + 15) / 16 * 16;
  return fmt::format("(({}*)((char*)shared + {}))[i - begin]", kept_[0].TypeOf(load), SlotBytes() + before);
}

int64_t CudaReductionWriter::PacksOfRun() const {
  return std::max<int64_t>(1, kTermsOfRun / (plan_.columns ? 1 : plan_.width));
}

std::vector<CudaReductionWriter::RunSum> CudaReductionWriter::RunSums(int step) const {
  std::vector<RunSum> sums;
  const bool is_one_run = IsNested() ? planned_.packs <= PacksOfRun() : whole_ && most_each_ <= PacksOfRun();
  if (is_one_run) return sums;
  for (const Accumulator& a : work_.accumulators) {
    if (a.step == step && a.op == "sum" && FoldOf(a).type == "float")
      sums.push_back({a.result, fmt::format("sum{}", sums.size())});
  }
  return sums;
}

std::string CudaReductionWriter::BeginRuns(int step) const {
  std::string text;
  for (const RunSum& sum : RunSums(step)) text += fmt::format("float {}[{}] = {{}};\n", sum.name, count_);
  return text;
}

std::string CudaReductionWriter::EndRun(int step) const {
  std::string text;
  for (const RunSum& sum : RunSums(step))
    text += fmt::format("#pragma unroll\nfor (int t = 0; t < {0}; ++t) r{1}[t] += {2}[t], {2}[t] = 0;\n",
                        count_, sum.result, sum.name);
  if (text.empty()) return text;
  return fmt::format("if (u % {} == {} || u == kEach - 1) {{\n{}}}\n", PacksOfRun(), PacksOfRun() - 1, text);
}

std::string CudaReductionWriter::Updates(CudaPrinter& printer, int step) {
  const std::vector<RunSum> sums = RunSums(step);
  std::string text;
  for (const Accumulator& a : work_.accumulators) {
    if (a.step != step) continue;
    const CudaFold fold = FoldOf(a);
    const bool is_single = plan_.columns || plan_.width == 1;
    std::string place = is_single ? "i" : fmt::format("i * {} + w", plan_.width);
    place = fold.type == "Extreme" ? "int(" + place + ")" : "(long)" + place;
    const std::string value = printer.Value(a.value);
    const auto sum =
        std::find_if(sums.begin(), sums.end(), [&](const RunSum& one) { return one.result == a.result; });
    const std::string name = sum == sums.end() ? fmt::format("r{}", a.result) : sum->name;
    text +=
        printer.TakeLines() + fold.Add(fmt::format("{}[{}]", name, plan_.columns ? "w" : "0"), value, place);
  }
  return text;
}

std::string CudaReductionWriter::JoinThreads(int step) const {
  std::string text;
  if (group_ == 1 && !has_group_knob_) return text;
  for (const Accumulator& a : work_.accumulators) {
    if (a.step != step) continue;
    const CudaFold fold = FoldOf(a);
    text += plan_.columns ? fmt::format("AcrossDown<kRows, kThreads>(r{}, {});\n", a.result, fold.combine)
                          : fmt::format("r{0}[0] = AcrossGroup<kGroup, kThreads>(r{0}[0], {1});\n", a.result,
                                        fold.combine);
    if (plan_.cluster > 1)
      text +=
          fmt::format("r{0}[0] = AcrossCluster<{1}>(r{0}[0], ({2}*)((char*)shared + {3}), {4});\n", a.result,
                      plan_.cluster, fold.type, 8 * (&a - work_.accumulators.data()), fold.combine);
  }
  return text;
}

std::string CudaReductionWriter::PartialAt(size_t accumulator, const std::string& part) const {
  const CudaFold fold = FoldOf(work_.accumulators[accumulator]);
  const std::string pointer = fold.is_place ? fmt::format("(({}*){})", fold.type, partial_names_[accumulator])
                                            : partial_names_[accumulator];
  return fmt::format("{}[({} * (long)({}) + point) * {} + t]", pointer, part, kernel_->Number(planned_.outer),
                     count_);
}

std::string CudaReductionWriter::ToPartials(int step) const {
  std::string text = "if (lane == 0 && is_there) {\n#pragma unroll\n" +
                     fmt::format("for (int t = 0; t < {}; ++t) {{\n", count_);
  for (size_t i = 0; i < work_.accumulators.size(); ++i) {
    if (work_.accumulators[i].step == step)
      text += fmt::format("{} = r{}[t];\n", PartialAt(i, "part"), work_.accumulators[i].result);
  }
  return text + "}\n}\n";
}

std::string CudaReductionWriter::FromPartials(int step) const {
  std::string text;
  for (size_t i = 0; i < work_.accumulators.size(); ++i) {
    const Accumulator& a = work_.accumulators[i];
    if (a.step != step) continue;
    const CudaFold fold = FoldOf(a);
    const std::string at = PartialAt(i, "p"), parts = Parts();
    text += fmt::format("{0} r{1}[{2}];\n#pragma unroll\nfor (int t = 0; t < {2}; ++t) {{\nr{1}[t] = {3};\n",
                        fold.type, a.result, count_, fold.start);
    text += a.op == "sum" && fold.type == "float"
                ? fmt::format(
                      "for (int first = lane; first < {0}; first += kGroup * {1}) {{\nfloat sum = 0;\n"
                      "for (int p = first; p < min({0}, first + kGroup * {1}); p += kGroup) sum += {2};\n"
                      "r{3}[t] += sum;\n}}\n}}\n",
                      parts, kTermsOfRun, at, a.result)
                : fmt::format(
                      "for (int p = lane; p < {0}; p += kGroup) {{\nconst {1} a = r{2}[t], b = {3};\n"
                      "r{2}[t] = {4};\n}}\n}}\n",
                      parts, fold.type, a.result, at, fold.update);
  }
  return text + JoinThreads(step);
}

std::string CudaReductionWriter::OuterStores() {
  if (work_.outer_stores.empty()) return "";
  CudaPrinter printer = *printer_;
  const bool has_parts = plan_.cluster > 1 || (plan_.parts > 1 && blocks_have_parts_);
  const std::string first = has_parts ? " && part == 0" : "";
  return "if (lane == 0 && is_there" + first + ") {\n" +
         NeighbourLoop(printer, work_.outer_stores, kNeighbour, count_, false,
                       [&](CudaPrinter& inside) {
                         if (plan_.columns) row_loads_->Bind(inside, "w");
                         BindResults(inside, plan_.columns ? "w" : "0");
                       }) +
         "}\n";
}

}  // namespace kevin::search
