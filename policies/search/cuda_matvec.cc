// CUDA: a matrix times a vector, and similar reductions: each row is folded with one operand that all rows
// share. A block takes several rows and reads the shared operand once for all of them.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/forms.h"
#include "policies/search/prelude.h"
#include "policies/search/term.h"

namespace kevin::search {
namespace {

constexpr const char* kCudaMatvec = R"(
constexpr long kRows = 1L * {outer}, kTerms = 1L * {terms};
constexpr int kWidth = {width}, kThreads = {threads}, kEach = {each}, kTogether = {rows};
constexpr long kGroups = (kRows + kTogether - 1) / kTogether;   // of rows
constexpr long kPacks = kTerms / kWidth, kParts = {parts}, kPart = (kPacks + kParts - 1) / kParts;

INLINE float Joined(float a, float b) { return {join}; }
INLINE float Result(float total) {
{after}return {result};
}

// Block by block a part of a few rows; neighbouring blocks have the same part.
__global__ void __launch_bounds__(kThreads) Rows({parameters}, float* partial) {
const long row = blockIdx.x % kGroups * kTogether, part = blockIdx.x / kGroups;
const long begin = min(part * kPart, kPacks), end = min(begin + kPart, kPacks);
float total[kTogether];
#pragma unroll
for (int t = 0; t < kTogether; ++t) total[t] = {start};
for (long base = begin; base < end; base += kThreads * kEach) {
{declare}#pragma unroll
for (int u = 0; u < kEach; ++u) {
const long v = base + u * kThreads + threadIdx.x;
if (v < end) {
{shared_loads}#pragma unroll
for (int t = 0; t < kTogether; ++t) {
const long first = min(row + t, kRows - 1) * kTerms;   // a row past the last is the last again
{row_loads}}
}
}
#pragma unroll
for (int u = 0; u < kEach; ++u) {
const long v = base + u * kThreads + threadIdx.x;
if (v < end) {
#pragma unroll
for (int t = 0; t < kTogether; ++t) {
#pragma unroll
for (int w = 0; w < kWidth; ++w) {
{lines}total[t] = Joined(total[t], {value});
}
}
}
}
}
#pragma unroll
for (int t = 0; t < kTogether; ++t) {
const float all = AcrossBlock<kThreads>(total[t], Joined);
if (threadIdx.x == 0 && row + t < kRows) {
if (kParts == 1) out0[row + t] = Result(all);
else partial[(row + t) * kParts + part] = all;
}
}
}
{finish}
{head} {
const long rows = {outer}, groups = ceil_div({outer}, {rows});
float* partial = workspace<float>(rows * {parts});
Rows<<<groups * {parts}, {threads}>>>({arguments}, partial);
{launch_finish}}
)";

constexpr const char* kCudaMatvecFinish = R"(
__global__ void Finish(const float* __restrict__ partial, float* __restrict__ out0) {
const long row = blockIdx.x * 128L + threadIdx.x;
if (row >= kRows) return;
float total = partial[row * kParts];
for (long p = 1; p < kParts; ++p) total = Joined(total, partial[row * kParts + p]);
out0[row] = Result(total);
}
)";

std::string WriteCudaMatvec(const ReducedForm& form, const Task& task, const Setting& setting) {
  const std::vector<Dim>& shape = form.reduction->args[0]->shape;
  const ReductionForm fold = FormOf(form.reduction->op);
  std::map<std::string, std::string> fields(setting.begin(), setting.end());
  Emitter emitter(CudaDialect(false), "", "t", [&](const Term& leaf) {
    const std::string input = std::to_string(leaf.input), from = Name(leaf.input);
    if (Count(leaf.shape) == 1) return "__ldg(" + from + ")";
    const bool is_shared = !IsFull(leaf, shape);
    const std::string name = (is_shared ? "p" : "x") + input;
    fields["declare"] += fmt::format("Pack<kWidth> {}[kEach]{};\n", name, is_shared ? "" : "[kTogether]");
    fields[is_shared ? "shared_loads" : "row_loads"] +=
        is_shared ? fmt::format("{}[u] = Load<kWidth>({} + v * kWidth);\n", name, from)
                  : fmt::format("{}[u][t] = LoadOnce<kWidth>({} + first + v * kWidth);\n", name, from);
    return name + (is_shared ? "[u]" : "[u][t]") + ".at[w]";
  });
  fields["value"] = emitter.Emit(form.reduction->args[0]);
  fields["lines"] = emitter.Lines();
  Emitter after(CudaDialect(false), "", "e",
                [](const Term& leaf) { return "__ldg(" + Name(leaf.input) + ")"; });
  after.Bind(*form.reduction, form.reduction->op == "mean" ? "(total / kTerms)" : "total");
  fields["result"] = after.Emit(form.root);
  fields["after"] = after.Lines();
  const bool is_split = !Is(setting, "parts", "1");
  fields["finish"] = is_split ? kCudaMatvecFinish : "";
  fields["launch_finish"] = is_split ? "Finish<<<ceil_div(rows, 128), 128>>>(partial, out0);\n" : "";
  fields.insert({{"outer", form.layout.outer_text},
                 {"terms", form.layout.terms_text},
                 {"width", std::to_string(PackWidth(form.layout.terms))},
                 {"start", fold.start},
                 {"join", Combine(fold, "a", "b")},
                 {"parameters", KernelParameters(task)},
                 {"arguments", KernelArguments(task)},
                 {"head", LaunchHead(task)}});
  return Fill(kCudaMatvec, fields);
}

std::vector<Knob> CudaMatvecKnobs(const ReducedLayout& layout, const TaskDevice& device) {
  // About four blocks per multiprocessor, each with work for every thread.
  const int64_t packs = layout.terms / PackWidth(layout.terms), groups = (layout.outer + 3) / 4;
  const int64_t most = std::max<int64_t>(1, packs / 512);
  const auto parts = [&](int64_t blocks) {
    return std::to_string(std::clamp<int64_t>(blocks / groups, 1, most));
  };
  Knob split{"parts", {parts(4 * device.multiprocessors)}};
  for (const std::string& more : {parts(16 * device.multiprocessors), std::string("1")}) {
    if (std::count(split.values.begin(), split.values.end(), more) == 0) split.values.push_back(more);
  }
  Knob rows{"rows", {"4", "2", "8", "1"}};
  if (layout.outer < 4) rows.values = {"1", "2"};
  return {rows, {"each", {"2", "4", "1"}}, split, {"threads", {"256", "512", "128"}}};
}

}  // namespace

std::optional<Kernel> RecogniseCudaMatvec(const Computation& computation) {
  const std::optional<ReducedForm> form = FindReduction(computation);
  if (!form || form->layout.inner != 1 || form->layout.outer < 2) return std::nullopt;
  const TermPtr operand = form->reduction->args[0];
  const std::vector<TermPtr> leaves = Leaves(operand);
  const bool has_shared = std::any_of(leaves.begin(), leaves.end(), [&](const TermPtr& leaf) {
    return !IsFull(*leaf, operand->shape) && Count(leaf->shape) != 1;
  });
  if (!has_shared) return std::nullopt;
  Kernel kernel;
  kernel.family = "matvec";
  kernel.summary = "several rows at once against one reading of the vector";
  kernel.knobs = CudaMatvecKnobs(form->layout, computation.task->device);
  kernel.write = [form = *form, task = *computation.task](const Setting& setting) {
    return WithCudaPrelude(WriteCudaMatvec(form, task, setting));
  };
  return kernel;
}

}  // namespace kevin::search
