// CUDA families `elementwise`, `broadcast` and `scan`: one result per element of the input.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/forms.h"
#include "policies/search/prelude.h"
#include "policies/search/term.h"

namespace kevin::search {

// --- Elementwise ---
// One pass over the output: out[i] = f(inputs), any expression, operands broadcast along whole dimensions.
// Each thread processes several packs at once; the packs of a block are adjacent.

namespace {

constexpr const char* kCudaElementwise = R"(
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

std::string WriteCudaElementwise(const ElementwiseForm& form, int width, const Task& task,
                                 const Setting& setting) {
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
      kCudaElementwise,
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
    return WithCudaPrelude(WriteCudaElementwise(form, width, task, setting), element);
  };
  return kernel;
}

// --- Scans ---
// Cumulative sums and products. Over the last dimension a block scans a row tile by tile, in packs, then
// lanes, then warps, and carries the running value to the next tile; few long rows are first reduced in
// parts. Over another dimension each thread keeps the running values of its columns.

namespace {

constexpr const char* kCudaScanSizes = R"(
constexpr long kRows = 1L * {outer}, kTerms = 1L * {terms};
constexpr int kWidth = {width}, kEach = {each}, kThreads = {threads}, kWarps = kThreads / 32;
constexpr long kTile = kThreads * kEach * kWidth, kTiles = (kTerms + kTile - 1) / kTile;
constexpr long kParts = {parts}, kPart = (kTiles + kParts - 1) / kParts * kTile;

INLINE float Joined(float a, float b) { return a {op} b; }
// Where pack `u` of this thread begins: a warp's packs lie side by side.
INLINE long Place(long tile, int u) {
return tile + ((threadIdx.x / 32 * kEach + u) * 32 + threadIdx.x % 32) * kWidth;
}
INLINE void LoadTile(Pack<kWidth> (&x)[kEach], const float* row, long tile, long end) {
#pragma unroll
for (int u = 0; u < kEach; ++u) {
const long i = Place(tile, u);
if (i < end) {
x[u] = LoadOnce<kWidth>(row + i);
} else {
#pragma unroll
for (int w = 0; w < kWidth; ++w) x[u].at[w] = {start};
}
}
}
)";

constexpr const char* kCudaScanSums = R"(
// Folds a part of a row; the last parts need no folding.
__global__ void __launch_bounds__(kThreads) Sums(const float* __restrict__ in0, float* partial) {
const long row = blockIdx.x / kParts, part = blockIdx.x % kParts, end = min(kTerms, (part + 1) * kPart);
float total = {start};
for (long tile = part * kPart; tile < end; tile += kTile) {
Pack<kWidth> x[kEach];
LoadTile(x, in0 + row * kTerms, tile, end);
#pragma unroll
for (int u = 0; u < kEach; ++u) {
#pragma unroll
for (int w = 0; w < kWidth; ++w) total = Joined(total, x[u].at[w]);
}
}
total = AcrossBlock<kThreads>(total, Joined);
if (threadIdx.x == 0) partial[blockIdx.x] = total;
}
)";

constexpr const char* kCarryOfPart = R"(
for (long p = threadIdx.x; p < part; p += kThreads) carry = Joined(carry, partial[row * kParts + p]);
carry = AcrossBlock<kThreads>(carry, Joined);
)";

constexpr const char* kCudaScanRows = R"(
__global__ void __launch_bounds__(kThreads) Scan({parameters}{partial_parameter}) {
const long row = blockIdx.x / kParts, part = blockIdx.x % kParts, end = min(kTerms, (part + 1) * kPart);
const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
__shared__ float totals[2][kWarps];   // of the warps; two, so that one barrier a tile is enough
float carry = {start};
{carry}Pack<kWidth> next[kEach];
if ({ahead}) LoadTile(next, in0 + row * kTerms, part * kPart, end);
int turn = 0;
for (long tile = part * kPart; tile < end; tile += kTile, turn ^= 1) {
Pack<kWidth> x[kEach];
if ({ahead}) {
#pragma unroll
for (int u = 0; u < kEach; ++u) x[u] = next[u];
LoadTile(next, in0 + row * kTerms, tile + kTile, end);
} else {
LoadTile(x, in0 + row * kTerms, tile, end);
}
float before[kEach], running = {start};   // what lies before each pack within the warp, and the warp's fold
#pragma unroll
for (int u = 0; u < kEach; ++u) {
#pragma unroll
for (int w = 1; w < kWidth; ++w) x[u].at[w] = Joined(x[u].at[w - 1], x[u].at[w]);
float upto = x[u].at[kWidth - 1];
#pragma unroll
for (int step = 1; step < 32; step *= 2) {
const float lower = __shfl_up_sync(0xffffffffu, upto, step);
if (lane >= step) upto = Joined(lower, upto);
}
const float lower = __shfl_up_sync(0xffffffffu, upto, 1);
before[u] = lane == 0 ? running : Joined(running, lower);
running = Joined(running, __shfl_sync(0xffffffffu, upto, 31));
}
if (lane == 0) totals[turn][warp] = running;
__syncthreads();
float offset = carry;
#pragma unroll
for (int k = 0; k < kWarps; ++k) {
if (k == warp) offset = carry;
carry = Joined(carry, totals[turn][k]);
}
#pragma unroll
for (int u = 0; u < kEach; ++u) {
const long i = Place(tile, u);
const float add = Joined(offset, before[u]);
#pragma unroll
for (int w = 0; w < kWidth; ++w) x[u].at[w] = Joined(add, x[u].at[w]);
if (i < end) StoreOnce<kWidth>(out0 + row * kTerms + i, x[u]);
}
}
}

{head} {
const long rows = {outer};
{launch}}
)";

constexpr const char* kCudaScanColumns = R"(
constexpr long kOuter = 1L * {outer}, kTerms = 1L * {terms}, kInner = 1L * {inner};
constexpr int kWidth = {width}, kBatch = {batch}, kThreads = {threads};
constexpr long kPacks = kInner / kWidth;   // of columns

__global__ void __launch_bounds__(kThreads) Scan({parameters}) {
const long job = blockIdx.x * (long)kThreads + threadIdx.x;
if (job >= kOuter * kPacks) return;
const long first = job / kPacks * kTerms * kInner + job % kPacks * kWidth;
Pack<kWidth> carry;
#pragma unroll
for (int w = 0; w < kWidth; ++w) carry.at[w] = {start};
for (long base = 0; base < kTerms; base += kBatch) {
Pack<kWidth> x[kBatch];
#pragma unroll
for (int b = 0; b < kBatch; ++b) {
if (base + b < kTerms) x[b] = LoadOnce<kWidth>(in0 + first + (base + b) * kInner);
}
#pragma unroll
for (int b = 0; b < kBatch; ++b) {
if (base + b < kTerms) {
#pragma unroll
for (int w = 0; w < kWidth; ++w) carry.at[w] = carry.at[w] {op} x[b].at[w];
StoreOnce<kWidth>(out0 + first + (base + b) * kInner, carry);
}
}
}
}

{head} {
const long packs = ceil_div({inner}, {width}) * {outer};
Scan<<<ceil_div(packs, {threads}), {threads}>>>({arguments});
}
)";

std::map<std::string, std::string> CudaScanFields(const ScanForm& form, int width, const Task& task,
                                                  const Setting& setting) {
  std::map<std::string, std::string> fields(setting.begin(), setting.end());
  fields.insert({{"outer", form.layout.outer_text},
                 {"terms", form.layout.terms_text},
                 {"inner", form.layout.inner_text},
                 {"width", std::to_string(width)},
                 {"start", form.is_sum ? "0.0f" : "1.0f"},
                 {"op", form.is_sum ? "+" : "*"},
                 {"parameters", KernelParameters(task)},
                 {"arguments", KernelArguments(task)},
                 {"head", LaunchHead(task)}});
  return fields;
}

std::string WriteCudaScanRows(const ScanForm& form, const Task& task, const Setting& setting) {
  const std::string& parts = setting.at("parts");
  const std::string threads = setting.at("threads"), arguments = KernelArguments(task);
  const bool is_split = parts != "1";
  std::map<std::string, std::string> fields =
      CudaScanFields(form, PackWidth(form.layout.terms), task, setting);
  fields["ahead"] = Is(setting, "ahead", "yes") ? "true" : "false";
  fields["carry"] = is_split ? kCarryOfPart + 1 : "";
  fields["partial_parameter"] = is_split ? ", const float* partial" : "";
  fields["launch"] =
      is_split ? fmt::format(
                     "float* partial = workspace<float>(rows * {0});\n"
                     "Sums<<<rows * {0}, {1}>>>(in0, partial);\nScan<<<rows * {0}, {1}>>>({2}, partial);\n",
                     parts, threads, arguments)
               : fmt::format("Scan<<<rows, {}>>>({});\n", threads, arguments);
  return Fill(std::string(kCudaScanSizes) + (is_split ? kCudaScanSums : "") + kCudaScanRows, fields);
}

std::vector<Knob> CudaScanRowKnobs(const ReducedLayout& layout, const TaskDevice& device) {
  const int64_t packs = layout.terms / PackWidth(layout.terms);
  std::vector<std::string> threads = {"32", "64", "128"};
  if (packs >= 512) threads = {"256", "512", "128"};
  Knob parts{"parts", {"1"}};
  const int64_t wanted = (8 * device.multiprocessors + layout.outer - 1) / layout.outer;
  const bool splits = layout.outer < 2 * device.multiprocessors && layout.terms >= 32768;
  if (splits)
    parts.values.insert(parts.values.begin(), std::to_string(std::min(wanted, layout.terms / 8192)));
  return {{"each", {"4", "2", "8"}}, {"threads", threads}, {"ahead", {"no", "yes"}}, parts};
}

}  // namespace

std::optional<Kernel> RecogniseCudaScan(const Computation& computation) {
  const std::optional<ScanForm> form = FindScan(computation);
  if (!form) return std::nullopt;
  const bool is_row = form->layout.inner == 1;
  Kernel kernel;
  kernel.family = "scan";
  kernel.summary = is_row ? "tiles scanned in packs, lanes and warps, with a carry from tile to tile"
                          : "running columns, several terms loaded ahead";
  kernel.knobs = is_row ? CudaScanRowKnobs(form->layout, computation.task->device)
                        : std::vector<Knob>{{"batch", {"8", "4", "16"}}, {"threads", {"128", "64", "256"}}};
  kernel.write = [form = *form, is_row, task = *computation.task](const Setting& setting) {
    if (is_row) return WithCudaPrelude(WriteCudaScanRows(form, task, setting));
    const int width = PackWidth(form.layout.inner);
    return WithCudaPrelude(Fill(kCudaScanColumns, CudaScanFields(form, width, task, setting)));
  };
  return kernel;
}

}  // namespace kevin::search
