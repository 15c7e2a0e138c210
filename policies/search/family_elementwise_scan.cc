// C++ families `elementwise`, `broadcast` and `scan`: one result per element of the input.

#include <fmt/format.h>

#include "policies/search/forms.h"
#include "policies/search/prelude.h"
#include "policies/search/term.h"

namespace kevin::search {

// --- Elementwise ---
// One pass over the output: out[i] = f(inputs), any expression, operands broadcast along whole dimensions.

namespace {

constexpr const char* kFlat = R"(
constexpr long kCount = {count};
constexpr long kChunk = {chunk};

{head} {
#pragma omp parallel for schedule(static)
  for (long chunk = 0; chunk < (kCount + kChunk - 1) / kChunk; ++chunk) {
    const long begin = chunk * kChunk, end = begin + kChunk < kCount ? begin + kChunk : kCount;
    Walk<{unroll}>(begin, end, [&](auto part, long i, int) __attribute__((always_inline)) {
{lines}      part.{store}(out0 + i, {result});
    });
{fence}  }
}
)";

constexpr const char* kBroadcast = R"(
constexpr long kRows = {rows}, kInner = {inner};

{head} {
#pragma omp parallel for schedule(static)
  for (long row = 0; row < kRows; ++row) {
{row_lines}    {element}* to = out0 + row * kInner;
    Walk<{unroll}>(0, kInner, [&](auto part, long i, int) __attribute__((always_inline)) {
{lines}      part.{store}(to + i, {result});
    });
{fence}  }
}
)";

std::string Chunk(const Setting& setting, int threads) {
  if (Is(setting, "chunk", "share")) {
    return fmt::format("(kCount + {0} * 64 - 1) / ({0} * 64) * 64", threads);
  }
  return setting.at("chunk");
}

std::string WriteFlat(const TermPtr& root, const Task& task, const Setting& setting) {
  std::string loads;
  Emitter emitter(CppDialect(), "      ", "t", [&](const Term& leaf) {
    if (Count(leaf.shape) == 1 && Count(root->shape) != 1) return "Splat(" + Name(leaf.input) + "[0])";
    const std::string at = Name(leaf.input) + " + i";
    if (!Is(setting, "prefetch", "0")) {
      loads += fmt::format("      __builtin_prefetch({} + {});\n", at, setting.at("prefetch"));
    }
    return "part.Load(" + at + ")";
  });
  const std::string result = emitter.Emit(root);
  const bool streams = Is(setting, "store", "stream");
  return Fill(kFlat, {{"count", CountText(root->shape)},
                      {"chunk", Chunk(setting, task.threads)},
                      {"head", LaunchHead(task)},
                      {"unroll", setting.at("unroll")},
                      {"lines", loads + emitter.Lines()},
                      {"store", streams ? "Stream" : "Store"},
                      {"result", result},
                      {"fence", streams ? "    StreamFence();\n" : ""}});
}

std::string WriteBroadcast(const TermPtr& root, size_t split, const Task& task, const Setting& setting) {
  std::string row_lines;
  int operand = 0;
  Emitter emitter(CppDialect(), "      ", "t", [&](const Term& leaf) {
    const std::string name = "row" + std::to_string(operand++);
    const std::string from = Name(leaf.input) + " + (" + RowOffset(leaf, root->shape, split) + ")";
    if (MotionOver(leaf, root->shape, split, root->shape.size()) == Motion::kConstant) {
      row_lines += fmt::format("    const Vec {} = Splat(*({}));\n", name, from);
      return name;
    }
    row_lines += fmt::format("    const {}* {} = {};\n", ElementOf(task), name, from);
    return "part.Load(" + name + " + i)";
  });
  const std::string result = emitter.Emit(root);
  // After a row whose length is not a multiple of the vector length the next row is unaligned.
  const bool streams = Is(setting, "store", "stream") &&
                       Count({root->shape.begin() + static_cast<long>(split), root->shape.end()}) % 16 == 0;
  return Fill(kBroadcast, {{"rows", CountText(root->shape, 0, split)},
                           {"inner", CountText(root->shape, split, root->shape.size())},
                           {"head", LaunchHead(task)},
                           {"row_lines", row_lines},
                           {"element", ElementOf(task)},
                           {"unroll", setting.at("unroll")},
                           {"lines", emitter.Lines()},
                           {"store", streams ? "Stream" : "Store"},
                           {"result", result},
                           {"fence", streams ? "    StreamFence();\n" : ""}});
}

}  // namespace

std::optional<Kernel> RecogniseElementwise(const Computation& computation) {
  const std::optional<ElementwiseForm> form = FindElementwise(computation);
  if (!form) return std::nullopt;
  Kernel kernel;
  kernel.family = form->split == 0 ? "elementwise" : "broadcast";
  kernel.summary = "the whole expression in one pass over memory";
  const bool is_wide = ElementOf(*computation.task) == "float";
  kernel.knobs = {
      {"store", is_wide ? std::vector<std::string>{"stream", "plain"} : std::vector<std::string>{"plain"}},
      {"unroll", {"4", "1", "2", "8"}},
      {"lanes", {"full", "half"}}};
  if (form->split == 0) {
    kernel.knobs.insert(kernel.knobs.begin() + 1, Knob{"prefetch", {"0", "512", "1024", "4096"}});
    kernel.knobs.insert(kernel.knobs.end() - 1, Knob{"chunk", {"share", "65536", "8192"}});
  }
  kernel.write = [root = form->root, split = form->split, task = *computation.task](const Setting& setting) {
    return WithPrelude(
        split == 0 ? WriteFlat(root, task, setting) : WriteBroadcast(root, split, task, setting),
        setting.at("lanes"), ElementOf(task));
  };
  return kernel;
}

// --- Scans ---
// Cumulative sums and products. Over the last dimension a vector is scanned in log2(lanes) shifted additions
// and then shifted by the row's running value, several rows at once to hide the latency. Over another
// dimension a strip of columns keeps running vectors.

namespace {

constexpr const char* kScanRows = R"(
constexpr long kRows = {outer}, kTerms = {terms};
constexpr int kTogether = {together};

// Lane i becomes the fold of lanes 0 to i.
template <int kBy, int... kLane>
INLINE Vec Shifted(Vec v, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(v, Splat({start}), (kLane < kBy ? kLanes : kLane - kBy)...);
}
template <int kBy>
INLINE Vec ScanStep(Vec v) {
  return v {op} Shifted<kBy>(v, std::make_integer_sequence<int, kLanes>{});
}
INLINE Vec ScanLanes(Vec v) {
  v = ScanStep<1>(v);
  v = ScanStep<2>(v);
  if constexpr (kLanes > 4) v = ScanStep<4>(v);
  if constexpr (kLanes > 8) v = ScanStep<8>(v);
  return v;
}

template <int kCount>
INLINE void ScanRows(const float* from, float* to) {
  float carry[kCount];
  for (int k = 0; k < kCount; ++k) carry[k] = {start};
  Walk<1>(0, kTerms, [&](auto part, long i, int) __attribute__((always_inline)) {
#pragma GCC unroll 16
    for (int k = 0; k < kCount; ++k) {
      const Vec v = ScanLanes(part.Load(from + k * kTerms + i)) {op} carry[k];
      part.{store}(to + k * kTerms + i, v);
      carry[k] = v[kLanes - 1];
    }
  });
}

{head} {
#pragma omp parallel for schedule(static)
  for (long group = 0; group < (kRows + kTogether - 1) / kTogether; ++group) {
    const long row = group * kTogether;
    if (row + kTogether <= kRows) {
      ScanRows<kTogether>(in0 + row * kTerms, out0 + row * kTerms);
    } else {
      for (long r = row; r < kRows; ++r) ScanRows<1>(in0 + r * kTerms, out0 + r * kTerms);
    }
{fence}  }
}
)";

constexpr const char* kScanColumns = R"(
constexpr long kOuter = {outer}, kTerms = {terms}, kInner = {inner};
constexpr long kStrip = {strip} * kLanes, kStrips = (kInner + kStrip - 1) / kStrip;

{head} {
#pragma omp parallel for schedule(static)
  for (long job = 0; job < kOuter * kStrips; ++job) {
    const long outer = job / kStrips, begin = job % kStrips * kStrip;
    const long end = begin + kStrip < kInner ? begin + kStrip : kInner;
    alignas(64) float carry[kStrip];
    for (long j = 0; j < kStrip; ++j) carry[j] = {start};
    for (long r = 0; r < kTerms; ++r) {
      const long first = (outer * kTerms + r) * kInner;
      Walk<2>(begin, end, [&](auto part, long j, int) __attribute__((always_inline)) {
        const Vec v = part.Load(in0 + first + j) {op} LoadVec(carry + (j - begin));
        StoreVec(carry + (j - begin), v);
        part.{store}(out0 + first + j, v);
      });
    }
{fence}  }
}
)";

}  // namespace

std::optional<Kernel> RecogniseScan(const Computation& computation) {
  const std::optional<ScanForm> form = FindScan(computation);
  if (!form) return std::nullopt;
  const ReducedLayout& layout = form->layout;
  const bool is_row = layout.inner == 1;
  Kernel kernel;
  kernel.family = "scan";
  kernel.summary =
      is_row ? "vectors scanned in registers, several rows at once" : "strips of running columns";
  kernel.knobs = {is_row ? Knob{"together", {"8", "4", "16", "2", "1"}} : Knob{"strip", {"64", "256", "16"}},
                  {"lanes", {"full", "half"}},
                  {"store", {"stream", "plain"}}};
  kernel.write = [layout, is_row, is_sum = form->is_sum, task = *computation.task](const Setting& setting) {
    const bool streams = Is(setting, "store", "stream") && (is_row ? layout.terms : layout.inner) % 16 == 0;
    std::map<std::string, std::string> fields(setting.begin(), setting.end());
    fields["store"] = streams ? "Stream" : "Store";
    fields.insert({{"outer", layout.outer_text},
                   {"terms", layout.terms_text},
                   {"inner", layout.inner_text},
                   {"head", LaunchHead(task)},
                   {"start", is_sum ? "0.0f" : "1.0f"},
                   {"op", is_sum ? "+" : "*"},
                   {"fence", streams ? "    StreamFence();\n" : ""}});
    return WithPrelude(Fill(is_row ? kScanRows : kScanColumns, fields), setting.at("lanes"));
  };
  return kernel;
}

}  // namespace kevin::search
