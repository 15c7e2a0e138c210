// Reductions: passes over the inner loops, one a step, then one that stores. See CudaReductionPlan for how threads share
// them.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/cuda_reduction.h"

namespace kevin::search {
namespace {

// The C++ of an accumulator.
struct CudaFold {
  std::string type, start, combine;  // `combine`: a lambda over two of `type`
  bool is_place = false;

  explicit CudaFold(const Accumulator& a) {
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
      type = "Extreme";
      start = fmt::format("Extreme{{{}Infinity(), 0x7fffffff}}", is_max ? "-" : "");
      joined = is_max ? "Higher(a, b)" : "Lower(a, b)";
    }
    if (joined.empty()) throw Unsupported("a reduction `" + a.op + "` has no text in CUDA");
    combine = fmt::format("[]({0} a, {0} b) {{ return {1}; }}", type, joined);
    update = joined;
  }
  std::string Add(const std::string& name, const std::string& value, const std::string& place) const {
    const std::string term = is_place        ? fmt::format("Extreme{{float({}), {}}}", value, place)
                             : type == "int" ? fmt::format("int({} != 0)", value)
                                             : fmt::format("{}({})", type, value);
    return fmt::format("{{\nconst {0} a = {1}, b = {2};\n{1} = {3};\n}}\n", type, name, term, update);
  }
  std::string update;
};

class CudaReductionWriter {
 public:
  CudaReductionWriter(CudaText& text, const Stage& stage, const Reduction& whole)
      : text_(text),
        stage_(stage),
        planned_(PlanCudaReduction(text, whole)),
        work_(planned_.work),
        plan_(planned_.plan) {
    steps_ = work_.accumulators.empty() ? 0 : LastStep(work_) + 1;
    count_ = plan_.columns ? plan_.width : 1;
  }

  void Write() {
    if (plan_.parts > 1) return WriteSplit();
    BeginKernel(plan_.group, plan_.threads);
    std::string body = Prologue();
    for (int step = 0; step < steps_; ++step) body += StepPass(step) + JoinThreads(step);
    body += OuterStores();
    if (!work_.inner_stores.empty()) body += Pass(steps_, "");
    std::string attributes;
    if (plan_.cluster > 1) {
      attributes = fmt::format("__cluster_dims__({}, 1, 1)", plan_.cluster);
      body += "ClusterBarrier();   // others may still read this block's slots\n";
    }
    kernel_->Launch("Reduce", body, Grid(), Threads(), Threads(), SharedBytes(), attributes);
  }

 private:
  using Keep = CudaReductionPlan::Keep;

  // A kernel for each step that leaves partial results, and one that joins the last and stores.
  void WriteSplit() {
    for (const Accumulator& accumulator : work_.accumulators) {
      const CudaFold fold(accumulator);
      partials_.push_back(text_.AddWorkspace(fold.is_place ? "float2" : fold.type,
                                             fmt::format("{}L", planned_.outer * count_ * plan_.parts)));
    }
    for (int step = 0; step < steps_; ++step) {
      BeginKernel(plan_.group, plan_.threads);
      std::string body = Prologue();
      for (int earlier = 0; earlier < step; ++earlier) body += FromPartials(earlier);
      body += StepPass(step) + JoinThreads(step) + ToPartials(step);
      kernel_->Launch("ReducePart", body, Grid(), Threads(), Threads());
    }
    const bool has_pass = !work_.inner_stores.empty();
    const int64_t parts = plan_.parts;
    is_end_ = true;
    if (!has_pass) {
      BeginKernel(plan_.columns ? 1 : 32, 64);
      blocks_have_parts_ = false;
    } else {
      BeginKernel(plan_.group, plan_.threads);
    }
    std::string body = Prologue();
    for (int step = 0; step < steps_; ++step) body += FromPartials(step);
    body += OuterStores();
    if (has_pass) body += Pass(steps_, "");
    plan_.parts = parts;
    kernel_->Launch("ReduceEnd", body, Grid(), Threads(), Threads());
  }

  void BeginKernel(int64_t group, int64_t threads) {
    kernel_.emplace(text_, stage_);
    printer_.emplace(*kernel_);
    group_ = group, threads_ = threads;
    kept_.clear();
    loads_.clear();
    pass_loads_.clear();
    row_loads_.reset();
    partial_names_.clear();
    has_kept_ = false;
    for (size_t i = 0; i < partials_.size(); ++i) {
      const CudaFold fold(work_.accumulators[i]);
      partial_names_.push_back(fmt::format("p{}", i));
      kernel_->AddParameter(
          fmt::format("{}* {}", fold.is_place ? "float2" : fold.type, partial_names_.back()), partials_[i]);
    }
    FindLoads();
  }

  // Loads of the outer point, of each pass, and those that stay from pass to pass.
  void FindLoads() {
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

  // On an inner loop, a result, or a load that is itself done later.
  bool DependsOnPass(const CudaLoad& load) const {
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

  // Texts of the constants: knobs where the plan allows.
  bool HasKnobs() const { return !is_end_ && plan_.parts == 1 && plan_.cluster == 1; }
  std::string GroupText() const {
    return HasKnobs() && HasCudaGroupKnob(plan_) ? text_.KnobText("GROUP", group_) : std::to_string(group_);
  }
  std::string Threads() const {
    const std::string group = GroupText(), number = std::to_string(threads_);
    if (!HasKnobs()) return number;
    const std::string threads =
        plan_.columns || plan_.group <= 32 ? text_.KnobText("THREADS", threads_) : "256";
    if (plan_.columns || group == std::to_string(group_))
      return plan_.columns || plan_.group <= 32 ? threads : number;
    return fmt::format("({0} > 32 ? {0} : {1})", group, threads);
  }
  std::string Grid() const {
    if (HasKnobs()) {
      const std::string group = GroupText(), threads = Threads();
      if (group != std::to_string(group_) || threads != std::to_string(threads_))
        return fmt::format("ceil_div({}L, {} / {})", planned_.outer, threads, group);
    }
    const int64_t rows = threads_ / group_, blocks = (planned_.outer + rows - 1) / rows;
    if (plan_.cluster > 1) return std::to_string(blocks * plan_.cluster);
    if (plan_.parts == 1 || !blocks_have_parts_) return std::to_string(blocks);
    return fmt::format("dim3({}, {})", blocks, plan_.parts);
  }
  // Packs of an outer point that one block folds.
  int64_t PerBlock() const { return (planned_.packs + plan_.cluster - 1) / plan_.cluster; }
  // Slots of the cluster's results come first.
  int64_t SlotBytes() const {
    return plan_.cluster > 1 ? 16 * static_cast<int64_t>((work_.accumulators.size() + 1) / 2) : 0;
  }
  std::string SharedBytes() const {
    const int64_t kept = plan_.keep == Keep::kShared && !kept_.empty() ? SharedKept() : 0;
    return SlotBytes() + kept > 0 ? std::to_string(SlotBytes() + kept) : "";
  }
  int64_t SharedKept() const {
    int64_t bytes = 0;
    for (size_t i = 0; i < kept_[0].size(); ++i) bytes += (PackBytes(i) * PerBlock() + 15) / 16 * 16;
    return bytes;
  }
  int64_t PackBytes(size_t load) const {
    const bool is_long = kept_[0].TypeOf(load).find("long") != std::string::npos;
    const bool is_pack = kept_[0].TypeOf(load).rfind("Pack", 0) == 0;
    return (is_long ? 8 : 4) * (is_pack ? plan_.width : 1);
  }

  std::string Prologue() {
    const bool in_registers = plan_.keep == Keep::kRegisters && !kept_.empty();
    const int64_t each = in_registers ? (PerBlock() + group_ - 1) / group_ : plan_.each;
    // Kept in registers, or so few that one turn is enough: all packs of a thread are under way at once.
    const std::string group = GroupText();
    has_group_knob_ = group != std::to_string(group_);
    whole_ = plan_.parts == 1 && !plan_.nested && each * group_ >= PerBlock() &&
             (in_registers || !has_group_knob_);
    std::string each_text = std::to_string(each);
    if (in_registers && has_group_knob_) each_text = fmt::format("({} + kGroup - 1) / kGroup", PerBlock());
    if (!in_registers && !whole_ && !plan_.nested && HasKnobs()) each_text = text_.KnobText("EACH", each);
    std::string text =
        fmt::format("constexpr int kGroup = {}, kThreads = {}, kEach = {}, kRows = kThreads / kGroup;\n",
                    group, Threads(), each_text);
    // The last pass begins with what the one before read last.
    const bool backwards = plan_.parts > 1 && !partial_names_.empty() && is_end_ && blocks_have_parts_;
    const char* block = backwards ? "(gridDim.x - 1 - blockIdx.x)" : "blockIdx.x";
    text +=
        plan_.columns
            ? fmt::format(
                  "const int lane = kGroup == 1 ? 0 : threadIdx.x / kRows;\nconst unsigned row = {} * kRows + threadIdx.x % kRows;\n",
                  block)
            : fmt::format(
                  "const int lane = threadIdx.x % kGroup;\nconst unsigned row = {} * kRows + threadIdx.x / kGroup;\n",
                  block);
    if (plan_.cluster > 1) {
      text.resize(text.rfind("const unsigned row"));
      text += fmt::format("const unsigned row = blockIdx.x / {0}, part = blockIdx.x % {0};\n", plan_.cluster);
    }
    const std::string outer = kernel_->Number(planned_.outer);
    text += fmt::format(
        "const bool is_there = row < (unsigned)({0});\nconst unsigned point = is_there ? row : (unsigned)({0}) - 1;\n",
        outer);
    text += DecodeLoops(*printer_, work_.outer, "point");
    const std::string packs = kernel_->Number(planned_.packs);
    if (plan_.parts > 1) {
      text += fmt::format(
          "const unsigned part = {}, per_part = ((unsigned)({}) + {}) / {};\n"
          "const unsigned begin = min(part * per_part, (unsigned)({})), end = min(begin + per_part, (unsigned)({}));\n",
          backwards            ? "gridDim.y - 1 - blockIdx.y"
          : blocks_have_parts_ ? "blockIdx.y"
                               : "0",
          packs, plan_.parts - 1, plan_.parts, packs, packs);
    } else if (plan_.cluster > 1) {
      text += fmt::format("const unsigned begin = part * {0}, end = min(begin + {0}, (unsigned)({1}));\n",
                          PerBlock(), packs);
    } else {
      text += fmt::format("const unsigned begin = 0, end = {};\n", packs);
    }
    if (row_loads_->size() > 0) {
      text += row_loads_->Declarations() + row_loads_->Statements(*printer_, false);
      if (!plan_.columns) row_loads_->Bind(*printer_, "0");
    }
    if (!kept_.empty() && plan_.keep == Keep::kRegisters) text += kept_[0].Declarations();
    if (!SharedBytes().empty()) text += "extern __shared__ float4 shared[];\n";
    return text;
  }

  void BindAll(CudaPrinter& printer, const CudaLoads& own) const {
    if (plan_.columns) row_loads_->Bind(printer, "w");
    own.Bind(printer, "w");
    if (!kept_.empty()) kept_[0].Bind(printer, "w");
    BindResults(printer, plan_.columns ? "w" : "0");
  }

  void BindResults(CudaPrinter& printer, const std::string& t) const {
    for (const Accumulator& a : work_.accumulators) {
      const CudaFold fold(a);
      const std::string name = fmt::format("r{}[{}]", a.result, t);
      printer.SetResult(a.result, fold.is_place        ? "long(" + name + ".place)"
                                  : fold.type == "int" ? "(" + name + " != 0)"
                                                       : name);
    }
  }

  std::string StepPass(int step) {
    std::string text;
    for (const Accumulator& a : work_.accumulators) {
      if (a.step != step) continue;
      const CudaFold fold(a);
      text += fmt::format("{} r{}[{}];\n#pragma unroll\nfor (int t = 0; t < {}; ++t) r{}[t] = {};\n",
                          fold.type, a.result, count_, count_, a.result, fold.start);
    }
    return text + Pass(step, "");
  }

  // Names the inner loops for pack i.
  std::string DecodeInner(CudaPrinter& printer) const {
    if (!plan_.nested) return DecodeLoops(printer, work_.inner, "i");
    for (size_t l = 0; l + 1 < work_.inner.size(); ++l)
      printer.SetVariable(work_.inner[l].variable, fmt::format("n{}", l));
    printer.SetVariable(work_.inner.back().variable, "u");
    return "";
  }

  std::string Nested(const std::string& body) const {
    std::string heads, tails;
    std::string base = "0";
    for (size_t l = 0; l + 1 < work_.inner.size(); ++l) {
      heads += fmt::format("for (int n{0} = 0; n{0} < {1}; ++n{0}) {{\n", l, work_.inner[l].extent);
      base = fmt::format("({} * {} + n{})", base, work_.inner[l].extent, l);
      tails += "}\n";
    }
    return heads + fmt::format("const unsigned base = {} * {};\n", base, work_.inner.back().extent) + body +
           tails;
  }

  std::string EachHead() const {
    if (plan_.nested)
      return "#pragma unroll\nfor (int u = 0; u < kEach; ++u) {\nconst unsigned i = base + u;\n{\n";
    const std::string guard = whole_ && plan_.cluster == 1 && !has_group_knob_ && planned_.packs % group_ == 0
                                  ? "{\n"
                                  : "if (i < end) {\n";
    return "#pragma unroll\nfor (int u = 0; u < kEach; ++u) {\nconst unsigned i = base + u * kGroup;\n" +
           guard;
  }

  // One pass over the inner loops: that of a step, or (pass == steps) the one that stores.
  std::string Pass(int pass, const std::string&) {
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
      body += own.Statements(printer, is_last || steps_ == 1) + "}\n}\n";
    }
    CudaPrinter printer = *printer_;
    body += EachHead() + DecodeInner(printer);
    if (loads_kept && plan_.keep == Keep::kShared)
      body += kept_[0].Copies(false, [&](size_t load) { return SharedAt(load); });
    const std::vector<Store> none;
    body += NeighbourLoop(
        printer, is_last ? work_.inner_stores : none, kNeighbour, plan_.width, true,
        [&](CudaPrinter& inside) { BindAll(inside, own); },
        [&](CudaPrinter& inside) { return is_last ? "" : Updates(inside, pass); });
    body += "}\n}\n";
    if (is_last) body = "if (is_there) {\n" + body + "}\n";
    if (plan_.nested) return Nested(body);
    if (whole_) return "{\nconst unsigned base = begin + lane;\n" + body + "}\n";
    return "for (unsigned base = begin + lane; base < end; base += kGroup * kEach) {\n" + body + "}\n";
  }

  std::string SharedAt(size_t load) const {
    int64_t before = 0;
    for (size_t i = 0; i < load; ++i) before += (PackBytes(i) * PerBlock() + 15) / 16 * 16;
    return fmt::format("(({}*)((char*)shared + {}))[i - begin]", kept_[0].TypeOf(load), SlotBytes() + before);
  }

  std::string Updates(CudaPrinter& printer, int step) {
    std::string text;
    const std::string place =
        plan_.columns || plan_.width == 1 ? "int(i)" : fmt::format("int(i * {} + w)", plan_.width);
    for (const Accumulator& a : work_.accumulators) {
      if (a.step != step) continue;
      const std::string value = printer.Value(a.value);
      text += printer.TakeLines() +
              CudaFold(a).Add(fmt::format("r{}[{}]", a.result, plan_.columns ? "w" : "0"), value, place);
    }
    return text;
  }

  std::string JoinThreads(int step) const {
    std::string text;
    if (group_ == 1 && !has_group_knob_) return text;
    for (const Accumulator& a : work_.accumulators) {
      if (a.step != step) continue;
      const CudaFold fold(a);
      text += plan_.columns ? fmt::format("AcrossDown<kRows, kThreads>(r{}, {});\n", a.result, fold.combine)
                            : fmt::format("r{0}[0] = AcrossGroup<kGroup, kThreads>(r{0}[0], {1});\n",
                                          a.result, fold.combine);
      if (plan_.cluster > 1)
        text += fmt::format("r{0}[0] = AcrossCluster<{1}>(r{0}[0], ({2}*)((char*)shared + {3}), {4});\n",
                            a.result, plan_.cluster, fold.type, 8 * (&a - work_.accumulators.data()),
                            fold.combine);
    }
    return text;
  }

  // Partial results lie by part, outer point, neighbour.
  std::string PartialAt(size_t accumulator, const std::string& part) const {
    const CudaFold fold(work_.accumulators[accumulator]);
    const std::string pointer = fold.is_place ? fmt::format("((Extreme*){})", partial_names_[accumulator])
                                              : partial_names_[accumulator];
    return fmt::format("{}[({} * (long)({}) + point) * {} + t]", pointer, part,
                       kernel_->Number(planned_.outer), count_);
  }

  std::string ToPartials(int step) const {
    std::string text = "if (lane == 0 && is_there) {\n#pragma unroll\n" +
                       fmt::format("for (int t = 0; t < {}; ++t) {{\n", count_);
    for (size_t i = 0; i < work_.accumulators.size(); ++i) {
      if (work_.accumulators[i].step == step)
        text += fmt::format("{} = r{}[t];\n", PartialAt(i, "part"), work_.accumulators[i].result);
    }
    return text + "}\n}\n";
  }

  std::string FromPartials(int step) const {
    std::string text;
    for (size_t i = 0; i < work_.accumulators.size(); ++i) {
      const Accumulator& a = work_.accumulators[i];
      if (a.step != step) continue;
      const CudaFold fold(a);
      text += fmt::format(
          "{0} r{1}[{2}];\n#pragma unroll\nfor (int t = 0; t < {2}; ++t) {{\nr{1}[t] = {3};\n"
          "for (int p = lane; p < {4}; p += kGroup) {{\nconst {0} a = r{1}[t], b = {5};\nr{1}[t] = {6};\n}}\n}}\n",
          fold.type, a.result, count_, fold.start, plan_.parts, PartialAt(i, "p"), fold.update);
    }
    return text + JoinThreads(step);
  }

  std::string OuterStores() {
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

  CudaText& text_;
  const Stage& stage_;
  CudaPlannedReduction planned_;
  const Reduction& work_;
  CudaReductionPlan& plan_;
  int steps_ = 0;
  int64_t count_ = 1, group_ = 1, threads_ = 1;
  bool whole_ = false, has_kept_ = false, blocks_have_parts_ = true, is_end_ = false, has_group_knob_ = false;
  std::optional<CudaKernel> kernel_;
  std::optional<CudaPrinter> printer_;
  std::vector<CudaLoads> kept_;  // at most one
  std::vector<CudaLoads> loads_;
  std::optional<CudaLoads> row_loads_;
  std::vector<std::vector<CudaLoad>> pass_loads_;
  std::vector<std::string> partials_, partial_names_;
};

}  // namespace

void WriteCudaReduction(CudaText& text, const Stage& stage, const Reduction& work) {
  CudaReductionWriter(text, stage, work).Write();
}

}  // namespace kevin::search
