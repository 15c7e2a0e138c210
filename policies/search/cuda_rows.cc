// Rows: the reduced dims come last. Between the passes a row is kept in the registers or the shared memory of
// its block, in the shared memory of a cluster of blocks, or in the caches ("block": one block reads it
// again; "split": several blocks share it, with one launch per pass and partial results in a workspace).

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "policies/search/cuda_staged.h"
#include "policies/search/prelude.h"

namespace kevin::search {
namespace {

class RowsWriter {
 public:
  RowsWriter(const StagedWork& work, const Task& task, const Setting& setting)
      : work_(work),
        form_(work.form),
        task_(task),
        dialect_(CudaDialect(Is(setting, "math", "fast"))),
        values_(dialect_),
        row_(setting.at("row")) {
    width_ = PackWidth(form_.layout.terms);
    threads_ = Integer(setting, "threads");
    packs_ = form_.layout.terms / width_;
    is_split_ = row_.rfind("split", 0) == 0;
    is_cluster_ = row_.rfind("cluster", 0) == 0;
    if (is_cluster_) parts_ = std::stoll(row_.substr(7));
    if (is_split_) parts_ = SplitParts();
    in_shared_ = row_ == "shared" || is_cluster_;
    in_registers_ = row_ == "registers";
    keeps_ = in_shared_ || in_registers_;
    replaces_ = keeps_ && MayReplace(work);
    each_ = in_registers_ ? (packs_ + threads_ - 1) / threads_ : Integer(setting, "each");
    if (keeps_) only_ = OnlyFullLeaf(work);
  }

  std::string Write() {
    std::string text = Constants();
    if (is_split_) {
      for (size_t stage = 0; stage < form_.stages.size(); ++stage) {
        if (!IsHead(work_, stage)) text += SplitKernel(stage);
      }
      text += SplitKernel(form_.stages.size());
    } else {
      text += OnlyKernel();
    }
    return text + Launch();
  }

 private:
  int64_t SplitParts() const {
    const int64_t waves = row_ == "split" ? 1 : std::stoll(row_.substr(5));
    const int64_t blocks = waves * task_.device.multiprocessors * 2048 / threads_;
    const int64_t wanted = (blocks + form_.layout.outer - 1) / form_.layout.outer;
    return std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, packs_ / threads_));
  }

  std::string Constants() const {
    return fmt::format(
        "\nconstexpr long kRows = 1L * {}, kTerms = 1L * {};\n"
        "constexpr int kWidth = {}, kThreads = {}, kEach = {};\n"
        "constexpr long kPacks = kTerms / kWidth, kParts = {}, kPart = (kPacks + kParts - 1) / kParts;\n",
        form_.layout.outer_text, form_.layout.terms_text, width_, threads_, each_, parts_);
  }

  std::string Prologue(bool is_backward) const {
    std::string text;
    if (parts_ == 1) {
      text = "  const long row = blockIdx.x, begin = 0, end = kPacks;\n";
    } else {
      // Neighbouring blocks of a split have the same part of different rows, those of a cluster the same row.
      text = fmt::format(
          "  const long job = {};\n  const long row = job {}, part = job {};\n"
          "  const long begin = min(part * kPart, kPacks), end = min(begin + kPart, kPacks);\n",
          is_backward ? "gridDim.x - 1 - blockIdx.x" : "blockIdx.x", is_split_ ? "% kRows" : "/ kParts",
          is_split_ ? "/ kRows" : "% kParts");
    }
    text += "  const long first = row * kTerms;\n";
    if (in_shared_) text += "  extern __shared__ float4 pool[];\n";
    if (is_cluster_) text += "  float* slots = (float*)pool;\n";
    if (in_shared_) text += fmt::format("  Pack<kWidth>* kept = (Pack<kWidth>*)(pool + {});\n", kSlots / 4);
    if (in_registers_) text += "  Pack<kWidth> kept[kEach];\n";
    return text;
  }

  std::string OnlyKernel() {
    std::string text =
        fmt::format("\n__global__ void {}__launch_bounds__(kThreads) Rows({}) {{\n",
                    is_cluster_ ? "__cluster_dims__(kParts, 1, 1) " : "", KernelParameters(task_));
    text += Prologue(false);
    for (size_t stage = 0; stage < form_.stages.size(); ++stage) {
      text += RowConstants(Operands(stage));
      text += IsHead(work_, stage) ? HeadStage(stage) : StagePass(stage);
      if (!IsHead(work_, stage)) text += Joined(stage);
    }
    text += RowConstants({form_.root});
    text += Result();
    if (is_cluster_) text += "  ClusterBarrier();   // others may still read this block's slots\n";
    return text + "}\n";
  }

  // The pass of one stage over a part of a row, or (stage == number of stages) the pass that writes the
  // result.
  std::string SplitKernel(size_t stage) {
    values_ = RowValues(dialect_);
    const bool is_last = stage == form_.stages.size();
    const bool is_row_result = is_last && work_.is_per_row;
    std::string text = fmt::format("\n__global__ void __launch_bounds__(kThreads) {}({}, {}) {{\n",
                                   KernelName(stage), KernelParameters(task_), PartialType() + "* partial");
    backwards_ = is_last && !work_.is_per_row;
    text += is_row_result ? "  const long row = blockIdx.x;\n" : Prologue(backwards_);
    for (size_t before = 0; before < stage; ++before) {
      text += RowConstants(Operands(before));
      text += IsHead(work_, before) ? HeadStage(before) : FromPartials(before);
    }
    if (is_last) {
      text += RowConstants({form_.root});
      text += Result();
    } else {
      text += RowConstants(Operands(stage));
      text += StagePass(stage);
      for (size_t k = 0; k < form_.stages[stage].size(); ++k) text += ToPartial(stage, k);
    }
    return text + "}\n";
  }

  std::string KernelName(size_t stage) const {
    return stage == form_.stages.size() ? "Finish" : "Stage" + std::to_string(stage);
  }
  std::string PartialType() const { return Fold(form_.stages.back()[0]->op).Type(); }

  std::vector<TermPtr> Operands(size_t stage) const {
    std::vector<TermPtr> operands;
    for (const TermPtr& reduction : form_.stages[stage]) operands.push_back(reduction->args[0]);
    return operands;
  }
  static std::string StageName(size_t stage, size_t which) { return fmt::format("r{}_{}", stage, which); }
  size_t Slot(size_t stage, size_t which) const {
    for (size_t s = 0; s < stage; ++s) which += form_.stages[s].size();
    return which;
  }

  std::string RowConstants(const std::vector<TermPtr>& users) {
    return values_.Compute(
        users, "", [](const std::string& name, const std::string& lines, const std::string& value) {
          return fmt::format("  float {};\n  {{\n{}    {} = {};\n  }}\n", name, lines, name, value);
        });
  }

  // The mean of the first terms, which are so few that each block reads them itself.
  std::string HeadStage(size_t stage) {
    const TermPtr& reduction = form_.stages[stage][0];
    const int64_t count = std::min<int64_t>(kHeadTerms, form_.layout.terms);
    Emitter emitter(dialect_, "    ", "h", [](const Term& leaf) {
      return "__ldg(" + Name(leaf.input) + (Count(leaf.shape) == 1 ? ")" : " + row * kTerms + i)");
    });
    const std::string value = emitter.Emit(reduction->args[0]), name = StageName(stage, 0);
    values_.Add(reduction, name);
    return fmt::format(
        "  float {0} = 0.0f;\n  for (int i = threadIdx.x; i < {1}; i += kThreads) {{\n{2}    {0} += {3};\n  "
        "}}\n"
        "  {0} = AcrossBlock<kThreads>({0}, [](float a, float b) {{ return a + b; }}) * (1.0f / {1});\n",
        name, count, emitter.Lines(), value);
  }

  // The operands of a pass and its operation on each element.
  struct Pass {
    std::string declare, lines, after;  // before the loop, per number, per pack
    std::vector<Term> leaves;
  };

  std::string LeafName(const Term& leaf) const {
    return (IsFull(leaf, form_.shape) ? "x" : "p") + std::to_string(leaf.input);
  }

  Emitter MakeEmitter(Pass& pass) const {
    Emitter emitter(dialect_, "          ", "t", [this, &pass](const Term& leaf) {
      if (Count(leaf.shape) == 1) return "__ldg(" + Name(leaf.input) + ")";
      pass.leaves.push_back(leaf);
      return LeafName(leaf) + ".at[w]";
    });
    values_.BindTo(emitter, "");
    return emitter;
  }

  std::string StagePass(size_t stage) {
    Pass pass;
    Emitter emitter = MakeEmitter(pass);
    const bool is_last_stage = stage + 1 == form_.stages.size();
    std::string updates;
    for (size_t k = 0; k < form_.stages[stage].size(); ++k) {
      const TermPtr& reduction = form_.stages[stage][k];
      const Fold fold(reduction->op);
      const std::string value = emitter.Emit(reduction->args[0]), name = StageName(stage, k);
      pass.declare += "  " + fold.Declare(name) + ";\n";
      updates += "          " + fold.Add(name, value, "int(v * kWidth) + w") + "\n";
      if (replaces_ && is_last_stage)
        updates += fmt::format("          {}.at[w] = {};\n", LeafName(*only_), value);
    }
    pass.lines = emitter.Lines() + updates;
    return pass.declare + Loop(pass, false);
  }

  // Every thread gets the row's value.
  std::string Joined(size_t stage) {
    std::string text;
    for (size_t k = 0; k < form_.stages[stage].size(); ++k) {
      const TermPtr& reduction = form_.stages[stage][k];
      const Fold fold(reduction->op);
      const std::string name = StageName(stage, k);
      std::string joined = fmt::format("AcrossBlock<kThreads>({}, {})", fold.Exchanged(name), fold.Lambda());
      if (is_cluster_) {
        joined =
            fmt::format("AcrossCluster<kParts>({}, slots + {}, {})", joined, Slot(stage, k), fold.Lambda());
      }
      text += fmt::format("  const {} {}_all = {}{};\n", fold.Type(), name, joined,
                          IsMean(*reduction) ? " * (1.0f / kTerms)" : "");
      values_.Add(reduction, name + "_all");
    }
    return text;
  }

  std::string PartialAt(size_t stage, size_t which) const {
    return fmt::format("partial + ({} * kRows + row) * kParts", Slot(stage, which));
  }

  std::string ToPartial(size_t stage, size_t which) {
    const Fold fold(form_.stages[stage][which]->op);
    const std::string name = StageName(stage, which);
    return fmt::format(
        "  const {0} {1}_part = AcrossBlock<kThreads>({2}, {3});\n"
        "  if (threadIdx.x == 0) ({4})[part] = {1}_part;\n",
        fold.Type(), name, fold.Exchanged(name), fold.Lambda(), PartialAt(stage, which));
  }

  std::string FromPartials(size_t stage) {
    std::string text;
    for (size_t k = 0; k < form_.stages[stage].size(); ++k) {
      const TermPtr& reduction = form_.stages[stage][k];
      const Fold fold(reduction->op);
      const std::string name = StageName(stage, k), join = name + "_join";
      text += fmt::format(
          "  const auto {0} = {1};\n  {2} {3} = {4};\n"
          "  for (int p = threadIdx.x; p < kParts; p += kThreads) {3} = {0}({3}, ({5})[p]);\n"
          "  const {2} {3}_all = AcrossBlock<kThreads>({3}, {0}){6};\n",
          join, fold.Lambda(), fold.Type(), name, fold.Neutral(), PartialAt(stage, k),
          IsMean(*reduction) ? " * (1.0f / kTerms)" : "");
      values_.Add(reduction, name + "_all");
    }
    return text;
  }

  std::string Result() {
    if (!work_.is_per_row) return LastPass();
    std::string value = "IndexOf(" + StageName(0, 0) + "_all)", lines;
    if (form_.root->op.rfind("arg", 0) != 0) {
      Emitter emitter(dialect_, "", "e", [](const Term& leaf) { return "__ldg(" + Name(leaf.input) + ")"; });
      values_.BindTo(emitter, "");
      value = emitter.Emit(form_.root);
      lines = emitter.Lines();
    }
    return fmt::format("if (threadIdx.x == 0) {{\n{}out0[row] = {};\n}}\n", lines, value);
  }

  std::string LastPass() {
    Pass pass;
    Emitter emitter = MakeEmitter(pass);
    if (replaces_) {
      pass.leaves.push_back(*only_);
      emitter.Bind(*form_.kept, LeafName(*only_) + ".at[w]");
    }
    const std::string value = emitter.Emit(form_.root);
    pass.lines = emitter.Lines() + fmt::format("          y.at[w] = {};\n", value);
    pass.after = "        StoreOnce<kWidth>(out0 + first + v * kWidth, y);\n";
    return Loop(pass, true);
  }

  std::string Inner(const Pass& pass, bool is_last) const {
    return std::string(is_last ? "        Pack<kWidth> y;\n" : "") +
           "#pragma unroll\n        for (int w = 0; w < kWidth; ++w) {\n" + pass.lines + "        }\n" +
           pass.after;
  }

  std::string LoadText(const Term& leaf, bool is_last) const {
    const bool is_full = IsFull(leaf, form_.shape);
    const bool is_only_pass = work_.is_per_row || is_last || keeps_;
    return fmt::format("Load{}<kWidth>({} + {}v * kWidth)", is_full && is_only_pass ? "Once" : "",
                       Name(leaf.input), is_full ? "first + " : "");
  }

  std::string Loop(const Pass& pass, bool is_last) {
    if (keeps_ && is_kept_) return KeptLoop(pass, is_last);
    is_kept_ = keeps_;
    std::string declare, loads, names, keep;
    for (const Term& leaf : pass.leaves) {
      const std::string name = LeafName(leaf);
      const bool stays = in_registers_ && IsFull(leaf, form_.shape);
      const std::string from = stays ? "kept" : name + "s";
      if (!stays) declare += fmt::format("    Pack<kWidth> {}[kEach];\n", from);
      loads += fmt::format("        {}[u] = {};\n", from, LoadText(leaf, is_last));
      names += fmt::format("        Pack<kWidth>& {} = {}[u];\n", name, from);
      if (in_shared_ && IsFull(leaf, form_.shape))
        keep = fmt::format("        kept[v - begin] = {};\n", name);
    }
    const std::string v = std::string("      const long v = ") + (backwards_ ? "begin + end - 1 - (" : "(") +
                          "base + u * kThreads + threadIdx.x);\n";
    return fmt::format(
        "  {0} {{\n{1}#pragma unroll\n    for (int u = 0; u < kEach; ++u) {{\n{2}      if ({3}) {{\n{4}      "
        "}}\n    }}\n"
        "#pragma unroll\n    for (int u = 0; u < kEach; ++u) {{\n{2}      if ({3}) {{\n{5}{6}{7}      }}\n   "
        " }}\n  }}\n",
        in_registers_ ? "const long base = begin;\n "
                      : "for (long base = begin; base < end; base += kThreads * kEach)",
        declare, v, backwards_ ? "v >= begin" : "v < end", loads, names, Inner(pass, is_last), keep);
  }

  std::string KeptLoop(const Pass& pass, bool is_last) const {
    std::string names;
    for (const Term& leaf : pass.leaves) {
      if (IsFull(leaf, form_.shape)) {
        names += fmt::format("        Pack<kWidth>& {} = kept[{}];\n", LeafName(leaf),
                             in_registers_ ? "u" : "v - begin");
      } else {
        names +=
            fmt::format("        const Pack<kWidth> {} = {};\n", LeafName(leaf), LoadText(leaf, is_last));
      }
    }
    const std::string head =
        in_registers_
            ? "#pragma unroll\n  for (int u = 0; u < kEach; ++u) {\n      const long v = begin + u * "
              "kThreads + threadIdx.x;\n"
              "      if (v < end) {\n"
            : "#pragma unroll 4\n  for (long v = begin + threadIdx.x; v < end; v += kThreads) {\n      {\n";
    return head + names + Inner(pass, is_last) + "      }\n  }\n";
  }

  std::string Launch() const {
    const std::string rows = "rows", arguments = KernelArguments(task_);
    std::string text =
        fmt::format("\n{} {{\n  const long rows = {};\n", LaunchHead(task_), form_.layout.outer_text);
    if (!is_split_) {
      std::string shared;
      if (in_shared_) {
        const int64_t part = (packs_ + parts_ - 1) / parts_;
        shared = fmt::format(", {}", kSlots * 4 + part * width_ * 4);
      }
      return text +
             fmt::format("  Rows<<<rows * {}, {}{}>>>({});\n}}\n", parts_, threads_, shared, arguments);
    }
    text += fmt::format("  {0}* partial = workspace<{0}>({1} * rows * {2});\n", PartialType(),
                        Slot(form_.stages.size(), 0), parts_);
    for (size_t stage = 0; stage <= form_.stages.size(); ++stage) {
      const bool is_last = stage == form_.stages.size();
      if (!is_last && IsHead(work_, stage)) continue;
      text += fmt::format("  {}<<<{}, {}>>>({}, partial);\n", KernelName(stage),
                          is_last && work_.is_per_row ? rows : fmt::format("rows * {}", parts_), threads_,
                          arguments);
    }
    return text + "}\n";
  }

  const StagedWork& work_;
  const NormalisedForm& form_;
  const Task& task_;
  const Dialect& dialect_;
  RowValues values_;
  std::string row_;
  int width_ = 1, threads_ = 0;
  int64_t packs_ = 0, parts_ = 1, each_ = 1;
  bool is_split_ = false, is_cluster_ = false, in_shared_ = false, in_registers_ = false;
  bool keeps_ = false, replaces_ = false, is_kept_ = false, backwards_ = false;
  TermPtr only_;
};

}  // namespace

std::string WriteRows(const StagedWork& work, const Task& task, const Setting& setting) {
  return RowsWriter(work, task, setting).Write();
}

}  // namespace kevin::search
