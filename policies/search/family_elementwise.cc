// One pass over the output: out[i] = f(inputs), any expression, operands broadcast along whole dimensions.

#include <fmt/format.h>

#include "policies/search/emit.h"
#include "policies/search/forms.h"
#include "policies/search/prelude.h"

namespace kevin::search {
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

constexpr const char* kRows = R"(
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

std::string WriteRows(const TermPtr& root, size_t split, const Task& task, const Setting& setting) {
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
  // A row that is no whole number of vectors leaves the next one unaligned.
  const bool streams = Is(setting, "store", "stream") &&
                       Count({root->shape.begin() + static_cast<long>(split), root->shape.end()}) % 16 == 0;
  return Fill(kRows, {{"rows", CountText(root->shape, 0, split)},
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
    return WithPrelude(split == 0 ? WriteFlat(root, task, setting) : WriteRows(root, split, task, setting),
                       setting.at("lanes"), ElementOf(task));
  };
  return kernel;
}

}  // namespace kevin::search
