// Recurrences in CUDA: one kernel for all steps of a loop whose body is a product with the last state and the gates.
// A cluster of blocks has a few rows of the batch. Each block keeps the weights of its units in registers. The state of
// the rows lies in the shared memory of every block; a step ends with the exchange of the new one.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/cuda_recurrence.h"

namespace kevin::search {
namespace {

constexpr const char* kProductOfStep = R"(const float4* state = shared + turn % 2 * (kRows * kSize / 4);
float sums[kGates][kRows];
#pragma unroll
for (int i = 0; i < kGates * kRows; ++i) sums[i / kRows][i % kRows] = 0.0f;
#pragma unroll
for (int i = 0; i < kPer / 4; ++i) {
#pragma unroll
for (int r = 0; r < kRows; ++r) {
const float4 h = state[r * (kSize / 4) + i * kLanes + lane];
#pragma unroll
for (int g = 0; g < kGates; ++g) sums[g][r] += weights[g][4 * i] * h.x;
#pragma unroll
for (int g = 0; g < kGates; ++g) sums[g][r] += weights[g][4 * i + 1] * h.y;
#pragma unroll
for (int g = 0; g < kGates; ++g) sums[g][r] += weights[g][4 * i + 2] * h.z;
#pragma unroll
for (int g = 0; g < kGates; ++g) sums[g][r] += weights[g][4 * i + 3] * h.w;
}
}
float made[kGates];   // lane r of a unit has row r
#pragma unroll
for (int g = 0; g < kGates; ++g) {
#pragma unroll
for (int r = 0; r < kRows; ++r) {
const float all = AcrossWarp<kLanes>(sums[g][r], [](float a, float b) { return a + b; });
if (r == 0 || lane == r) made[g] = all;
}
}
)";

class CudaRecurrenceWriter {
 public:
  CudaRecurrenceWriter(CudaText& text, const Stage& stage, const CudaRecurrence& work,
                       const CudaRecurrencePlan& plan)
      : text_(text), kernel_(text, stage), work_(work), plan_(plan), printer_(kernel_) {
    for (const Loop& loop : work.product->batch) printer_.SetVariable(loop.variable, "direction");
    for (const Loop& loop : work.product->m) printer_.SetVariable(loop.variable, "row");
    printer_.SetVariable(work.unit.variable, "unit");
    for (size_t i = 0; i < work.loads.size(); ++i) loads_.push_back(kernel_.Fresh("x"));
    for (size_t i = 0; i < work.kept.size(); ++i) kept_.push_back(kernel_.Fresh("last"));
    for (size_t i = 0; i < work.stores.size(); ++i) values_.push_back(kernel_.Fresh("y"));
  }

  void Write() {
    const int64_t rows = Points(work_.product->m), groups = (rows + plan_.rows - 1) / plan_.rows;
    rows_ = text_.Number(rows);
    std::string body = Constants(groups) + Weights() + FirstState() + FirstLoads();
    body += fmt::format("ClusterBarrier();\nfor (int turn = 0; turn < {}; ++turn) {{\n",
                        text_.Number(work_.times.extent));
    body += kProductOfStep + Gates() + Exchange() + "__cluster_barrier_arrive();\n" + Stores() +
            "__cluster_barrier_wait();\n}\n";
    kernel_.Launch("Recur", body, std::to_string(Points(work_.product->batch) * groups * plan_.blocks),
                   std::to_string(plan_.threads), fmt::format("{}, 1", plan_.threads),
                   std::to_string(2 * plan_.rows * work_.size * 4),
                   fmt::format("__cluster_dims__({}, 1, 1)", plan_.blocks));
  }

 private:
  std::string Constants(int64_t groups) const {
    return fmt::format(
        "constexpr int kSize = {}, kBlocks = {}, kLanes = {}, kGates = {}, kRows = {}, kThreads = {};\n"
        "constexpr int kUnits = kSize / kBlocks, kPer = kSize / kLanes;\n"
        "extern __shared__ float4 shared[];   // the states of two steps\n"
        "const int rank = blockIdx.x % kBlocks, group = blockIdx.x / kBlocks, lane = threadIdx.x % kLanes;\n"
        "const int unit = rank * kUnits + threadIdx.x / kLanes;\n"
        "const int direction = group / {}, first = group % {} * kRows, row = first + lane;\n"
        "const bool is_row = lane < kRows && row < {};\n",
        work_.size, plan_.blocks, plan_.lanes, work_.gates.size(), plan_.rows, plan_.threads,
        text_.Number(groups), text_.Number(groups), rows_);
  }

  std::string Weights() {
    std::string text =
        "float weights[kGates][kPer];\n#pragma unroll\nfor (int i = 0; i < kPer; ++i) {\n"
        "const int term = (i / 4 * kLanes + lane) * 4 + i % 4;\n";
    for (size_t g = 0; g < work_.gates.size(); ++g) {
      CudaPrinter printer = printer_;
      printer.SetVariable(work_.product->k[0].variable, "term");
      printer.SetVariable(work_.product->n[0].variable,
                          fmt::format("({} + unit)", text_.Number(work_.gates[g])));
      const std::string value = printer.Value(work_.product->rhs);
      text += fmt::format("{{\n{}weights[{}][i] = {};\n}}\n", printer.lines(), g, value);
    }
    return text + "}\n";
  }

  std::string FirstState() {
    CudaPrinter printer = printer_;
    printer.SetVariable(work_.product->k[0].variable, "term");
    printer.SetVariable(work_.times.variable, "0");
    const std::string value = printer.Value(work_.product->lhs);
    return fmt::format(
        "for (int i = threadIdx.x; i < kRows * kSize; i += kThreads) {{\nconst int term = i % kSize, row = first + i / kSize;\n"
        "float value = 0.0f;\nif (row < {}) {{\n{}value = {};\n}}\n((float*)shared)[i] = value;\n}}\n",
        rows_, printer.lines(), value);
  }

  // Values that come with the first step, or for all steps.
  std::string FirstLoads() {
    CudaPrinter printer = printer_;
    printer.SetVariable(work_.times.variable, "0");
    std::string declared, text;
    const auto add = [&](const std::string& name, const ExprPtr& load) {
      declared += fmt::format("float {} = 0.0f;\n", name);
      const std::string value = printer.Value(load);
      text += printer.TakeLines() + fmt::format("{} = {};\n", name, value);
    };
    for (size_t i = 0; i < loads_.size(); ++i) add(loads_[i], work_.loads[i]);
    for (size_t i = 0; i < kept_.size(); ++i) add(kept_[i], work_.kept[i].load);
    return text.empty() ? "" : declared + "if (is_row) {\n" + text + "}\n";
  }

  std::string Gates() {
    CudaPrinter printer = printer_;
    printer.SetVariable(work_.times.variable, "turn");
    printer.SetResult(0, "made[0]");
    for (const auto& [key, gate] : work_.products) printer.SetLoad(key, fmt::format("made[{}]", gate));
    for (size_t i = 0; i < loads_.size(); ++i) printer.SetLoad(work_.loads[i]->key, loads_[i]);
    for (size_t i = 0; i < kept_.size(); ++i) printer.SetLoad(work_.kept[i].load->key, kept_[i]);
    std::string declared, text;
    for (size_t i = 0; i < values_.size(); ++i) {
      const std::string type = text_.ElementType(work_.stores[i].buffer);
      declared += fmt::format("float {} = 0.0f;\n", values_[i]);
      const std::string value = printer.Value(work_.stores[i].value);
      text += printer.TakeLines() +
              fmt::format("{} = {};\n", values_[i],
                          type == "float" ? value : fmt::format("Widen(Narrow<{}>({}))", type, value));
    }
    return declared + "if (is_row) {\n" + text + "}\n";
  }

  // The new state goes to all blocks of the cluster.
  std::string Exchange() const {
    return fmt::format(
        "float* const next = (float*)shared + (turn + 1) % 2 * (kRows * kSize) + unit;\n#pragma unroll\n"
        "for (int r = 0; r < kRows; ++r) {{\n"
        "const float value = __shfl_sync(0xffffffffu, {}, threadIdx.x % 32 / kLanes * kLanes + r);\n"
        "for (int b = lane; b < kBlocks; b += kLanes) *(float*)__cluster_map_shared_rank(next + r * kSize, b) = value;\n"
        "}}\n",
        values_[work_.state_store]);
  }

  // While the other blocks arrive: the stores of the step, and the loads of the next.
  std::string Stores() {
    CudaPrinter printer = printer_;
    printer.SetVariable(work_.times.variable, "turn");
    std::string text, ahead;
    for (size_t i = 0; i < values_.size(); ++i) {
      const std::string offset = printer.Value(work_.stores[i].offset);
      text += printer.TakeLines() + StoreText(kernel_, work_.stores[i].buffer, offset, values_[i]);
    }
    for (size_t i = 0; i < kept_.size(); ++i)
      text += fmt::format("{} = {};\n", kept_[i], values_[work_.kept[i].store]);
    CudaPrinter next = printer_;
    next.SetVariable(work_.times.variable, "(turn + 1)");
    for (size_t i = 0; i < loads_.size(); ++i) {
      if (!Uses(work_.loads[i], work_.times.variable)) continue;
      const std::string value = next.Value(work_.loads[i]);
      ahead += next.TakeLines() + fmt::format("{} = {};\n", loads_[i], value);
    }
    if (!ahead.empty())
      ahead = fmt::format("if (turn + 1 < {}) {{\n{}}}\n", text_.Number(work_.times.extent), ahead);
    return "if (is_row) {\n" + text + ahead + "}\n";
  }

  CudaText& text_;
  CudaKernel kernel_;
  const CudaRecurrence& work_;
  const CudaRecurrencePlan& plan_;
  CudaPrinter printer_;
  std::string rows_;
  std::vector<std::string> loads_, kept_, values_;
};

}  // namespace

bool WriteCudaRecurrence(CudaText& text, const Stage& stage, const Repeat& repeat) {
  if (!text.repeat_variables().empty()) return false;
  const std::optional<CudaRecurrence> work = ReadCudaRecurrence(text.program(), repeat);
  if (!work || text.KnobValue(kCudaClusterKnob, 1) == 0) return false;
  const std::optional<CudaRecurrencePlan> plan = PlanCudaRecurrence(*work, text.device());
  if (!plan) return false;
  CudaRecurrenceWriter(text, stage, *work, *plan).Write();
  return true;
}

}  // namespace kevin::search
