// CUDA: one pass over the output: out[i] = f(inputs), any expression, operands broadcast along whole
// dimensions. Each thread has several packs under way at once, a block's packs lie side by side.

#include <fmt/format.h>

#include "policies/search/cuda_prelude.h"
#include "policies/search/emit.h"
#include "policies/search/forms.h"

namespace kevin::search {
namespace {

constexpr const char* kKernel = R"(
constexpr long kCount = 1L * {count};
constexpr int kWidth = {width}, kEach = {each}, kThreads = {threads};
constexpr long kPacks = kCount / kWidth, kTile = kThreads * kEach;
{inner}
__global__ void __launch_bounds__(kThreads) Elementwise({parameters}) {
  {tiles} {
    const long first = tile * kTile + threadIdx.x;
{declare}#pragma unroll
    for (int u = 0; u < kEach; ++u) {
      const long i = (first + u * kThreads) * kWidth;
      if (kPacks % kTile == 0 || i < kCount) {
{position}{loads}      }
    }
#pragma unroll
    for (int u = 0; u < kEach; ++u) {
      const long i = (first + u * kThreads) * kWidth;
      if (kPacks % kTile == 0 || i < kCount) {
        Pack<kWidth> y;
#pragma unroll
        for (int w = 0; w < kWidth; ++w) {
{lines}          y.at[w] = {result};
        }
        Store{once}<kWidth>(out0 + i, y);
      }
    }
  }
}

{head} {
  const long tiles = ceil_div({count}, {width} * {each} * {threads});
  Elementwise<<<{grid}, {threads}>>>({arguments});
}
)";

std::string Write(const ElementwiseForm& form, int width, const Task& task, const Setting& setting) {
  const std::vector<Dim>& shape = form.root->shape;
  const std::string once = Is(setting, "cache", "stream") ? "Once" : "";
  std::string declare, loads;
  int operands = 0;
  Emitter emitter(CudaDialect(Is(setting, "math", "fast")), "          ", "t", [&](const Term& leaf) {
    const std::string name = "x" + std::to_string(operands++), from = Name(leaf.input);
    if (MotionOver(leaf, shape, form.split, shape.size()) == Motion::kConstant) {
      declare += fmt::format("    float {}[kEach];\n", name);
      loads += fmt::format("        {}[u] = __ldg({} + ({}));\n", name, from,
                           form.split == 0 ? "0" : RowOffset(leaf, shape, form.split));
      return name + "[u]";
    }
    declare += fmt::format("    Pack<kWidth> {}[kEach];\n", name);
    const std::string at =
        form.split == 0 || IsFull(leaf, shape) ? "i" : RowOffset(leaf, shape, form.split) + " + i % kInner";
    loads += fmt::format("        {}[u] = Load{}<kWidth>({} + {});\n", name, at == "i" ? once : "", from, at);
    return name + "[u].at[w]";
  });
  const std::string result = emitter.Emit(form.root);
  const bool is_persistent = Is(setting, "walk", "persistent");
  const std::string inner = CountText(shape, form.split, shape.size());
  return Fill(
      kKernel,
      {{"count", CountText(shape)},
       {"width", std::to_string(width)},
       {"each", setting.at("each")},
       {"threads", setting.at("threads")},
       {"inner", form.split == 0 ? "" : "constexpr long kInner = 1L * " + inner + ";\n"},
       {"position", form.split == 0 ? "" : "        const long row = i / kInner;\n"},
       {"parameters", KernelParameters(task)},
       {"arguments", KernelArguments(task)},
       {"tiles", is_persistent ? "for (long tile = blockIdx.x; tile * kTile < kPacks; tile += gridDim.x)"
                               : "const long tile = blockIdx.x;\n "},
       {"grid", is_persistent ? fmt::format("min(tiles, {} * (2048 / {}))", task.device.multiprocessors,
                                            setting.at("threads"))
                              : "tiles"},
       {"declare", declare},
       {"loads", loads},
       {"lines", emitter.Lines()},
       {"result", result},
       {"once", once},
       {"head", LaunchHead(task)}});
}

}  // namespace

std::optional<Kernel> RecogniseCudaElementwise(const Computation& computation) {
  const std::optional<ElementwiseForm> form = FindElementwise(computation);
  if (!form) return std::nullopt;
  const std::vector<Dim>& shape = form->root->shape;
  const std::string element = ElementOf(*computation.task);
  const int64_t neighbours = Count({shape.begin() + static_cast<long>(form->split), shape.end()});
  const int width = element != "float" && neighbours % 8 == 0 ? 8 : PackWidth(neighbours);
  Kernel kernel;
  kernel.family = form->split == 0 ? "elementwise" : "broadcast";
  kernel.summary = "the whole expression in one pass over memory";
  kernel.knobs = {{"each", {"4", "2", "8", "1"}},
                  {"threads", {"256", "512", "128", "1024"}},
                  {"cache", {"stream", "plain"}},
                  MathKnob(form->root),
                  {"walk", {"once", "persistent"}}};
  kernel.write = [form = *form, width, element, task = *computation.task](const Setting& setting) {
    return WithCudaPrelude(Write(form, width, task, setting), element);
  };
  return kernel;
}

}  // namespace kevin::search
