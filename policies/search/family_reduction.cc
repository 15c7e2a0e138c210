// C++ families `reduction` and `extreme`: one result per reduced row.

#include <fmt/format.h>

#include "policies/search/forms.h"
#include "policies/search/prelude.h"
#include "policies/search/term.h"

namespace kevin::search {

// --- Reductions ---
// out = g(reduce(f(inputs))): one reduction over neighbouring dims, element-wise work before and after it.
// Over the last dims each row is folded in registers; else rows are added to a strip of accumulators in the
// cache.

namespace {

constexpr const char* kReductionRows = R"(
constexpr long kRows = {outer}, kTerms = {terms};
constexpr long kParts = {parts}, kPart = (kTerms + kParts * kLanes - 1) / (kParts * kLanes) * kLanes;
constexpr int kUnroll = {unroll};
{partial}
INLINE float Finish(float total) {
  const Vec sum = Splat(total);
{after}  return ({result})[0];
}

{head} {
#pragma omp parallel for schedule(static)
  for (long job = 0; job < kRows * kParts; ++job) {
    const long row = job / kParts, begin = job % kParts * kPart, first = row * kTerms;
    const long end = begin + kPart < kTerms ? begin + kPart : kTerms;
    Vec acc[kUnroll];
    for (int u = 0; u < kUnroll; ++u) acc[u] = Splat({start});
    Walk<kUnroll>(begin, end, [&](auto part, long i, int u) __attribute__((always_inline)) {
      const long at = first + i;
{prefetch}{lines}      acc[u] = {combine};
    });
    const float total = Across<kUnroll>(acc, [](Vec a, Vec b) { return {combine_across}; });
    {store}
  }
{join}}
)";

constexpr const char* kReductionJoin = R"(  for (long row = 0; row < kRows; ++row) {
    Vec total = Splat(partial[row * kParts]);
    for (long p = 1; p < kParts; ++p) {
      const Vec next = Splat(partial[row * kParts + p]);
      total = {combine_join};
    }
    out0[row] = Finish(total[0]);
  }
)";

constexpr const char* kReductionColumns = R"(
constexpr long kOuter = {outer}, kTerms = {terms}, kInner = {inner};
constexpr long kStrip = {strip} * kLanes, kStrips = (kInner + kStrip - 1) / kStrip;
constexpr int kTogether = {together};

template <int kCount>
INLINE void AddRows(float* acc, const long first, long begin, long end{pointers}) {
  Walk<{unroll}>(begin, end, [&](auto part, long j, int) __attribute__((always_inline)) {
    Vec a = LoadVec(acc + (j - begin));
#pragma GCC unroll 16
    for (int k = 0; k < kCount; ++k) {
      const long at = first + k * kInner + j;
{lines}      a = {combine};
    }
    StoreVec(acc + (j - begin), a);
  });
}

{head} {
#pragma omp parallel for schedule(static)
  for (long job = 0; job < kOuter * kStrips; ++job) {
    const long outer = job / kStrips, begin = job % kStrips * kStrip;
    const long end = begin + kStrip < kInner ? begin + kStrip : kInner;
    alignas(64) float acc[kStrip];
    for (long j = 0; j < kStrip; ++j) acc[j] = {start};
    long r = 0;
    for (; r + kTogether <= kTerms; r += kTogether) {
      AddRows<kTogether>(acc, (outer * kTerms + r) * kInner, begin, end{arguments});
    }
    for (; r < kTerms; ++r) AddRows<1>(acc, (outer * kTerms + r) * kInner, begin, end{arguments});
    Walk<1>(begin, end, [&](auto part, long j, int) __attribute__((always_inline)) {
      const Vec sum = LoadVec(acc + (j - begin));
{after}      part.Store(out0 + outer * kInner + j, {result});
    });
  }
}
)";

std::map<std::string, std::string> ReductionFields(const ReducedForm& reduced, const Task& task,
                                                   const Setting& setting) {
  const ReductionForm form = FormOf(reduced.reduction->op);
  const std::vector<Dim>& shape = reduced.reduction->args[0]->shape;
  Emitter before(CppDialect(), "      ", "t", [&](const Term& leaf) {
    if (Count(leaf.shape) == 1) return "Splat(" + Name(leaf.input) + "[0])";
    return "part.Load(" + Name(leaf.input) + (IsFull(leaf, shape) ? " + at)" : " + i)");
  });
  const std::string value = before.Emit(reduced.reduction->args[0]);
  const bool is_mean = reduced.reduction->op == "mean";
  const std::string indent = reduced.layout.inner == 1 ? "  " : "      ";
  Emitter after(CppDialect(), indent, "s", [](const Term& leaf) -> std::string {
    throw Unsupported("operand " + std::to_string(leaf.input) + " is used after a reduction");
  });
  after.Bind(*reduced.reduction, is_mean ? "(sum / float(kTerms))" : "sum");
  const std::string result = after.Emit(reduced.root);
  return {{"outer", reduced.layout.outer_text},
          {"terms", reduced.layout.terms_text},
          {"inner", reduced.layout.inner_text},
          {"head", LaunchHead(task)},
          {"unroll", setting.at("unroll")},
          {"start", form.start},
          {"lines", before.Lines()},
          {"after", after.Lines()},
          {"result", result},
          {"value", value}};
}

std::string WriteReductionRows(const ReducedForm& reduced, const Task& task, const Setting& setting) {
  const ReductionForm form = FormOf(reduced.reduction->op);
  std::map<std::string, std::string> fields = ReductionFields(reduced, task, setting);
  const bool is_split = !Is(setting, "parts", "1");
  fields["parts"] = setting.at("parts");
  fields["combine"] = Combine(form, "acc[u]", fmt::format("part.Keep({}, {})", fields["value"], form.start));
  fields["combine_across"] = Combine(form, "a", "b");
  fields["partial"] = is_split ? "static float partial[kRows * kParts];\n" : "";
  fields["store"] = is_split ? "partial[job] = total;" : "out0[row] = Finish(total);";
  fields["join"] = is_split ? Fill(kReductionJoin, {{"combine_join", Combine(form, "total", "next")}}) : "";
  fields["prefetch"] = "";
  if (!Is(setting, "prefetch", "0")) {
    for (const TermPtr& leaf : Leaves(reduced.reduction)) {
      fields["prefetch"] +=
          fmt::format("      __builtin_prefetch({} + at + {});\n", Name(leaf->input), setting.at("prefetch"));
    }
  }
  return Fill(kReductionRows, fields);
}

std::string WriteReductionColumns(const ReducedForm& reduced, const Task& task, const Setting& setting) {
  std::map<std::string, std::string> fields = ReductionFields(reduced, task, setting);
  fields["combine"] = Combine(FormOf(reduced.reduction->op), "a", fields["value"]);
  fields["strip"] = setting.at("strip");
  fields["together"] = setting.at("together");
  for (const TermPtr& leaf : Leaves(reduced.reduction)) {
    if (fields["arguments"].find(Name(leaf->input)) != std::string::npos) continue;
    fields["pointers"] += ", const float* " + Name(leaf->input);
    fields["arguments"] += ", " + Name(leaf->input);
  }
  return Fill(kReductionColumns, fields);
}

std::vector<Knob> ReductionKnobs(const ReducedLayout& layout, int threads) {
  if (layout.inner > 1) {
    return {{"together", {"4", "8", "2", "1"}},
            {"strip", {"64", "256", "16"}},
            {"unroll", {"2", "1", "4"}},
            {"lanes", {"full", "half"}}};
  }
  const std::string all = std::to_string(threads), more = std::to_string(4 * threads);
  const bool few_rows = layout.outer < 4 * threads && layout.terms >= 4096;
  Knob parts{"parts", few_rows ? std::vector<std::string>{all, more} : std::vector<std::string>{"1"}};
  if (few_rows && threads > 1) parts.values.push_back("1");
  return {{"unroll", {"4", "8", "2", "1"}},
          parts,
          {"prefetch", {"0", "1024", "4096"}},
          {"lanes", {"full", "half"}}};
}

}  // namespace

std::optional<Kernel> RecogniseReduction(const Computation& computation) {
  const std::optional<ReducedForm> form = FindReduction(computation);
  if (!form) return std::nullopt;
  Kernel kernel;
  kernel.family = "reduction";
  kernel.summary = "one pass over the input, the result kept in registers or the nearest cache";
  kernel.knobs = ReductionKnobs(form->layout, computation.task->threads);
  kernel.write = [reduced = *form, task = *computation.task](const Setting& setting) {
    return WithPrelude(reduced.layout.inner == 1 ? WriteReductionRows(reduced, task, setting)
                                                 : WriteReductionColumns(reduced, task, setting),
                       setting.at("lanes"));
  };
  return kernel;
}

// --- Indices of extremes ---
// out = the index of the largest (smallest) term; the first of equal ones, and of NaNs if there are any.

namespace {

constexpr const char* kTake = R"(
// Keeps in (best, where) the extreme so far and its index.
INLINE void Take(Vec v, IntVec index, Vec& best, IntVec& where) {
  const IntVec better = ((v {better} best) | (v != v)) & (best == best);
  best = better ? v : best;
  where = better ? index : where;
}
)";

constexpr const char* kExtremeRows = R"(
constexpr long kRows = {outer}, kTerms = {terms};
constexpr int kUnroll = {unroll};

{head} {
#pragma omp parallel for schedule(static)
  for (long row = 0; row < kRows; ++row) {
    Vec best[kUnroll];
    IntVec where[kUnroll], lane;
    for (int l = 0; l < kLanes; ++l) lane[l] = l;
    for (int u = 0; u < kUnroll; ++u) {
      best[u] = Splat({start});
      where[u] = IntVec{};
    }
    Walk<kUnroll>(0, kTerms, [&](auto part, long i, int u) __attribute__((always_inline)) {
      const Vec v = part.Keep(part.Load(in0 + row * kTerms + i), {start});
      Take(v, lane + int(i), best[u], where[u]);
    });
    float value = best[0][0];
    int index = where[0][0];
    for (int u = 0; u < kUnroll; ++u) {
      for (int l = 0; l < kLanes; ++l) {
        const float v = best[u][l];
        const int at = where[u][l];
        const bool both_nan = v != v && value != value, same = v == value || both_nan;
        if (same ? at < index : value == value && (v {better} value || v != v)) {
          value = v;
          index = at;
        }
      }
    }
    out0[row] = index;
  }
}
)";

constexpr const char* kExtremeColumns = R"(
constexpr long kOuter = {outer}, kTerms = {terms}, kInner = {inner};
constexpr long kStrip = {strip} * kLanes, kStrips = (kInner + kStrip - 1) / kStrip;
constexpr int kTogether = {together};

template <int kCount>
INLINE void AddRows(float* best, int* where, const float* from, long row, long begin, long end) {
  Walk<{unroll}>(begin, end, [&](auto part, long j, int) __attribute__((always_inline)) {
    Vec b = LoadVec(best + (j - begin));
    IntVec w = *(const IntVec*)(where + (j - begin));
#pragma GCC unroll 16
    for (int k = 0; k < kCount; ++k) Take(part.Load(from + k * kInner + j), IntVec{} + int(row + k), b, w);
    StoreVec(best + (j - begin), b);
    *(IntVec*)(where + (j - begin)) = w;
  });
}

{head} {
#pragma omp parallel for schedule(static)
  for (long job = 0; job < kOuter * kStrips; ++job) {
    const long outer = job / kStrips, begin = job % kStrips * kStrip;
    const long end = begin + kStrip < kInner ? begin + kStrip : kInner;
    alignas(64) float best[kStrip];
    alignas(64) int where[kStrip];
    for (long j = 0; j < kStrip; ++j) {
      best[j] = {start};
      where[j] = 0;
    }
    long r = 0;
    for (; r + kTogether <= kTerms; r += kTogether) {
      AddRows<kTogether>(best, where, in0 + (outer * kTerms + r) * kInner, r, begin, end);
    }
    for (; r < kTerms; ++r) AddRows<1>(best, where, in0 + (outer * kTerms + r) * kInner, r, begin, end);
    for (long j = begin; j < end; ++j) out0[outer * kInner + j] = where[j - begin];
  }
}
)";

}  // namespace

std::optional<Kernel> RecogniseExtreme(const Computation& computation) {
  const std::optional<ExtremeForm> form = FindExtreme(computation);
  if (!form) return std::nullopt;
  const ReducedLayout& layout = form->layout;
  Kernel kernel;
  kernel.family = "extreme";
  kernel.summary = "one pass that keeps the extreme and its index together";
  kernel.knobs = {{"unroll", {"2", "1", "4"}}, {"lanes", {"full", "half"}}};
  if (layout.inner > 1) {
    kernel.knobs.insert(kernel.knobs.begin(),
                        {{"together", {"4", "8", "2", "1"}}, {"strip", {"64", "256", "16"}}});
  }
  kernel.write = [layout, is_max = form->is_max, task = *computation.task](const Setting& setting) {
    std::map<std::string, std::string> fields(setting.begin(), setting.end());
    fields.insert({{"outer", layout.outer_text},
                   {"terms", layout.terms_text},
                   {"inner", layout.inner_text},
                   {"head", LaunchHead(task)},
                   {"better", is_max ? ">" : "<"},
                   {"start", is_max ? "-__builtin_inff()" : "__builtin_inff()"}});
    return WithPrelude(
        Fill(std::string(kTake) + (layout.inner == 1 ? kExtremeRows : kExtremeColumns), fields),
        setting.at("lanes"));
  };
  return kernel;
}

}  // namespace kevin::search
