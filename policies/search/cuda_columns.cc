// Columns: other dims follow the reduced ones. A thread folds one or more packs of neighbouring columns,
// `down` threads share a column, and columns of few terms stay in registers between passes.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/cuda_staged.h"
#include "policies/search/prelude.h"

namespace kevin::search {
namespace {

constexpr int64_t kMostInRegisters = 128;  // terms of a column

constexpr const char* kCudaColumns = R"(
constexpr long kOuter = 1L * {outer}, kTerms = 1L * {terms}, kInner = 1L * {inner};
constexpr int kWidth = {width}, kThreads = {threads}, kDown = {down}, kAcross = kThreads / kDown;
constexpr int kPacks = {columns}, kCount = kPacks * kWidth, kBatch = {batch};   // packs of columns, rows under way
constexpr long kStrips = (kInner + kAcross * kCount - 1) / (kAcross * kCount);
{across}
__global__ void __launch_bounds__(kThreads) Columns({parameters}) {
const long outer = blockIdx.x / kStrips, strip = blockIdx.x % kStrips, first = outer * kTerms * kInner;
const int across = threadIdx.x % kAcross, down = threadIdx.x / kAcross;
const long column = strip * (kAcross * kCount) + across * kWidth;   // of the first pack
{passes}}

{head} {
const long strips = ceil_div({inner}, {threads} / {down} * {columns} * {width});
Columns<<<{outer} * strips, {threads}>>>({arguments});
}
)";

constexpr const char* kCudaAcrossDown = R"(
// Folds what the threads of a column have; each gets the results.
template <class T, class Combine> INLINE void AcrossDown(T (&v)[kCount], Combine combine) {
  __shared__ T all[kCount * kThreads];
  __syncthreads();   // the last use is over
#pragma unroll
  for (int t = 0; t < kCount; ++t) all[t * kThreads + threadIdx.x] = v[t];
  __syncthreads();
#pragma unroll
  for (int t = 0; t < kCount; ++t) {
    v[t] = all[t * kThreads + threadIdx.x % kAcross];
#pragma unroll
    for (int d = 1; d < kDown; ++d) v[t] = combine(v[t], all[t * kThreads + d * kAcross + threadIdx.x % kAcross]);
  }
}
)";

class ColumnsWriter {
 public:
  ColumnsWriter(const StagedWork& work, const Task& task, const Setting& setting)
      : work_(work),
        form_(work.form),
        task_(task),
        setting_(setting),
        dialect_(CudaDialect(Is(setting, "math", "fast"))),
        values_(dialect_) {
    const auto knob = [&](const char* name, int fallback) {
      return setting.count(name) > 0 ? Integer(setting, name) : fallback;
    };
    down_ = knob("down", 1);
    columns_ = knob("columns", 1);
    batch_ = knob("batch", 1);
    width_ = PackWidth(form_.layout.inner);
    in_registers_ = setting.count("keep") > 0 && Is(setting, "keep", "registers");
    if (!in_registers_) return;
    columns_ = 1;
    batch_ = static_cast<int>((form_.layout.terms + down_ - 1) / down_);
    while (width_ > 1 && width_ * batch_ > 64) width_ /= 2;
    replaces_ = MayReplace(work);
    only_ = OnlyFullLeaf(work);
  }

  std::string Write() {
    std::string passes;
    for (size_t stage = 0; stage < form_.stages.size(); ++stage) passes += Stage(stage);
    passes += RowConstants({form_.root});
    passes += work_.is_per_row ? Results() : LastPass();
    return Fill(kCudaColumns, {{"outer", form_.layout.outer_text},
                               {"terms", form_.layout.terms_text},
                               {"inner", form_.layout.inner_text},
                               {"width", std::to_string(width_)},
                               {"threads", setting_.at("threads")},
                               {"down", std::to_string(down_)},
                               {"columns", std::to_string(columns_)},
                               {"batch", std::to_string(batch_)},
                               {"across", down_ > 1 ? kCudaAcrossDown : ""},
                               {"parameters", KernelParameters(task_)},
                               {"arguments", KernelArguments(task_)},
                               {"head", LaunchHead(task_)},
                               {"passes", passes}});
  }

 private:
  struct Pass {
    std::string lines, after;  // per number, per pack
    std::vector<Term> leaves;  // of full size
  };

  static std::string EachColumn(const std::string& body) {
    return "#pragma unroll\nfor (int t = 0; t < kCount; ++t) {\n" + body + "}\n";
  }

  std::string RowConstants(const std::vector<TermPtr>& users) {
    return values_.Compute(users, "[t]",
                           [](const std::string& name, const std::string& lines, const std::string& value) {
                             return fmt::format("float {}[kCount];\n", name) +
                                    EachColumn(lines + fmt::format("{}[t] = {};\n", name, value));
                           });
  }

  Emitter MakeEmitter(Pass& pass) const {
    Emitter emitter(dialect_, "", "t", [this, &pass](const Term& leaf) {
      if (Count(leaf.shape) == 1) return "__ldg(" + Name(leaf.input) + ")";
      if (!IsFull(leaf, form_.shape)) return "__ldg(" + Name(leaf.input) + " + r)";
      pass.leaves.push_back(leaf);
      return "x" + std::to_string(leaf.input) + ".at[w]";
    });
    values_.BindTo(emitter, "[t]");
    return emitter;
  }

  std::string Stage(size_t stage) {
    const std::vector<TermPtr>& reductions = form_.stages[stage];
    const bool is_head = IsHead(work_, stage);
    std::vector<TermPtr> operands;
    for (const TermPtr& reduction : reductions) operands.push_back(reduction->args[0]);
    std::string text = RowConstants(operands), declare, updates, joins;
    const std::string terms = is_head ? fmt::format("(kTerms < {0} ? kTerms : {0})", kHeadTerms) : "kTerms";
    Pass pass;
    Emitter emitter = MakeEmitter(pass);
    for (size_t k = 0; k < reductions.size(); ++k) {
      const Fold fold(reductions[k]->op);
      const std::string name = fmt::format("r{}_{}", stage, k), value = emitter.Emit(operands[k]);
      declare += fmt::format("{} {}[kCount];\n", fold.AccumulatorType(), name) +
                 EachColumn(fmt::format("{}[t] = {};\n", name, fold.Start()));
      updates += fold.Add(name + "[t]", value, "int(r)") + "\n";
      if (replaces_ && stage + 1 == form_.stages.size()) {
        updates += fmt::format("x{}.at[w] = {};\n", only_->input, value);
      }
      joins += Joined(*reductions[k], name, terms);
    }
    pass.lines = emitter.Lines() + updates;
    return text + declare + Loop(pass, terms, is_head) + joins;
  }

  std::string Joined(const Term& reduction, const std::string& name, const std::string& terms) {
    const Fold fold(reduction.op);
    const std::string all = name + "_all";
    values_.Add(std::make_shared<const Term>(reduction), all);
    std::string text = fmt::format("{} {}[kCount];\n", fold.Type(), all) +
                       EachColumn(fmt::format("{}[t] = {};\n", all, fold.Exchanged(name + "[t]")));
    if (down_ > 1) text += fmt::format("AcrossDown({}, {});\n", all, fold.Lambda());
    if (IsMean(reduction)) text += EachColumn(fmt::format("{}[t] *= 1.0f / {};\n", all, terms));
    return text;
  }

  std::string LastPass() {
    Pass pass;
    Emitter emitter = MakeEmitter(pass);
    if (replaces_) {
      pass.leaves.push_back(*only_);
      emitter.Bind(*form_.kept, fmt::format("x{}.at[w]", only_->input));
    }
    const std::string value = emitter.Emit(form_.root);
    pass.lines = emitter.Lines() + fmt::format("y.at[w] = {};\n", value);
    pass.after = "StoreOnce<kWidth>(out0 + first + r * kInner + j, y);\n";
    return Loop(pass, "kTerms", false);
  }

  std::string Results() {
    std::string value = "IndexOf(r0_0_all[t])", lines;
    if (form_.root->op.rfind("arg", 0) != 0) {
      Emitter emitter(dialect_, "", "e", [](const Term& leaf) { return "__ldg(" + Name(leaf.input) + ")"; });
      values_.BindTo(emitter, "[t]");
      value = emitter.Emit(form_.root);
      lines = emitter.Lines();
    }
    return "if (down == 0) {\n" +
           EachColumn(
               "const long j = column + t / kWidth * (kAcross * kWidth) + t % kWidth;\nif (j < kInner) {\n" +
               lines + fmt::format("out0[outer * kInner + j] = {};\n}}\n", value)) +
           "}\n";
  }

  std::string Loop(const Pass& pass, const std::string& terms, bool is_head) {
    const bool is_last = !pass.after.empty(), from_registers = in_registers_ && is_kept_;
    const std::string inside = fmt::format("if (r < {} && j < kInner) {{\n", terms);
    const std::string unroll =
        "#pragma unroll\nfor (int b = 0; b < kBatch; ++b) {\n#pragma unroll\nfor (int c = 0; c < kPacks; "
        "++c) {\n"
        "const long r = base + b * kDown, j = column + c * (kAcross * kWidth);\n" +
        inside;
    std::string before, declare, loads, names;
    for (const Term& leaf : pass.leaves) {
      const std::string name = "x" + std::to_string(leaf.input);
      const bool stays = in_registers_ && !is_head;
      const std::string from = stays ? "kept" : name + "s";
      (stays ? before : declare) += fmt::format("Pack<kWidth> {}[kBatch][kPacks];\n", from);
      loads += fmt::format("{}[b][c] = Load{}<kWidth>({} + first + r * kInner + j);\n", from,
                           work_.is_per_row || is_last || stays ? "Once" : "", Name(leaf.input));
      names += fmt::format("Pack<kWidth>& {} = {}[b][c];\n", name, from);
    }
    const std::string each =
        unroll + names + (is_last ? "Pack<kWidth> y;\n" : "") +
        "#pragma unroll\nfor (int w = 0; w < kWidth; ++w) {\nconst int t = c * kWidth + w;\n" + pass.lines +
        "}\n" + pass.after + "}\n}\n}\n";
    if (from_registers) return "{\nconst long base = down;\n" + each + "}\n";
    is_kept_ |= in_registers_ && !is_head;
    const std::string load = unroll + loads + "}\n}\n}\n";
    if (in_registers_ && !is_head) return before + "{\nconst long base = down;\n" + load + each + "}\n";
    return fmt::format("for (long base = down; base < {}; base += kDown * kBatch) {{\n", terms) + declare +
           load + each + "}\n";
  }

  const StagedWork& work_;
  const NormalisedForm& form_;
  const Task& task_;
  const Setting& setting_;
  const Dialect& dialect_;
  RowValues values_;
  int down_ = 1, columns_ = 1, batch_ = 1, width_ = 1;
  bool in_registers_ = false, replaces_ = false, is_kept_ = false;
  TermPtr only_;
};

}  // namespace

std::vector<Knob> ColumnKnobs(const StagedWork& work) {
  const ReducedLayout& layout = work.form.layout;
  const bool is_narrow = PackWidth(layout.inner) == 1;
  std::vector<Knob> knobs;
  if (!work.is_per_row && layout.terms <= kMostInRegisters && OnlyFullLeaf(work)) {
    return {{"down", {"1", "2", "4"}},
            {"threads", {"256", "128", "512"}},
            {"keep", {"registers", "no"}},
            {"batch", {"4", "8"}},
            MathKnob(work.form.root)};
  }
  Knob down{"down", {"8", "4", "16", "1"}};
  if (layout.terms < 64) down.values = {"1", "4"};
  return {
      {"batch", {"4", "8", "2"}},
      {"columns", is_narrow ? std::vector<std::string>{"4", "2", "1"} : std::vector<std::string>{"1", "2"}},
      down,
      {"threads", {"256", "512", "128"}},
      MathKnob(work.form.root)};
}

std::string WriteColumns(const StagedWork& work, const Task& task, const Setting& setting) {
  return ColumnsWriter(work, task, setting).Write();
}

}  // namespace kevin::search
