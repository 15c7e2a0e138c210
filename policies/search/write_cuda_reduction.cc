// Reductions: passes over the inner loops, one a step, then one that stores. See CudaReductionPlan for how threads share
// them. The kernels, their constants and beginnings; cuda_reduction_passes.cc has the passes.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/cuda_reduction_writer.h"

namespace kevin::search {

CudaReductionWriter::CudaReductionWriter(CudaText& text, const Stage& stage, const Reduction& whole)
    : text_(text),
      stage_(stage),
      planned_(PlanCudaReduction(text, whole)),
      work_(planned_.work),
      plan_(planned_.plan) {
  steps_ = work_.accumulators.empty() ? 0 : LastStep(work_) + 1;
  count_ = plan_.columns ? plan_.width : 1;
}

CudaFold CudaReductionWriter::FoldOf(const Accumulator& accumulator) const {
  return CudaFold(accumulator, IsWideCudaCount(Points(work_.inner) * plan_.width));
}

std::string CudaReductionWriter::PartialType(const CudaFold& fold) const {
  return fold.type == "Extreme" ? "float2" : fold.is_place ? "float4" : fold.type;
}

void CudaReductionWriter::Write() {
  if (plan_.parts > 1) return WriteSplit();
  BeginKernel(plan_.group, plan_.threads);
  std::string body = Prologue();
  for (int step = 0; step < steps_; ++step) body += StepPass(step) + JoinThreads(step);
  body += OuterStores();
  if (!work_.inner_stores.empty()) body += Pass(steps_);
  std::string attributes;
  if (plan_.cluster > 1) {
    attributes = fmt::format("__cluster_dims__({}, 1, 1)", plan_.cluster);
    body += "ClusterBarrier();   // others may still read this block's slots\n";
  }
  kernel_->Launch("Reduce", body, Grid(), Threads(), Threads(), SharedBytes(), attributes);
}

void CudaReductionWriter::WriteSplit() {
  for (const Accumulator& accumulator : work_.accumulators) {
    const int64_t each = planned_.outer * count_;
    partials_.push_back(text_.AddWorkspace(
        PartialType(FoldOf(accumulator)),
        HasPartsKnob() ? fmt::format("{}L * {}", each, Parts()) : fmt::format("{}L", each * plan_.parts)));
  }
  for (int step = 0; step < steps_; ++step) {
    BeginKernel(plan_.group, plan_.threads);
    std::string body = Prologue();
    for (int earlier = 0; earlier < step; ++earlier) body += FromPartials(earlier);
    body += StepPass(step) + JoinThreads(step) + ToPartials(step);
    kernel_->Launch("ReducePart", body, Grid(), Threads(), Threads());
  }
  const bool has_pass = !work_.inner_stores.empty();
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
  if (has_pass) body += Pass(steps_);
  kernel_->Launch("ReduceEnd", body, Grid(), Threads(), Threads());
}

void CudaReductionWriter::BeginKernel(int64_t group, int64_t threads) {
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
    partial_names_.push_back(fmt::format("p{}", i));
    kernel_->AddParameter(
        fmt::format("{}* {}", PartialType(FoldOf(work_.accumulators[i])), partial_names_.back()),
        partials_[i]);
  }
  FindLoads();
}

bool CudaReductionWriter::HasPartsKnob() const {
  return plan_.parts > 1 && text_.KnobText("PARTS", plan_.parts) != std::to_string(plan_.parts);
}

std::string CudaReductionWriter::Parts() const {
  return HasPartsKnob() ? text_.KnobText("PARTS", plan_.parts) : kernel_->Number(plan_.parts);
}

std::string CudaReductionWriter::GroupText() const {
  if (HasKnobs() && plan_.parts > 1 && !plan_.columns) return Threads();
  return HasKnobs() && HasCudaGroupKnob(plan_) ? text_.KnobText("GROUP", group_) : std::to_string(group_);
}

std::string CudaReductionWriter::Threads() const {
  const std::string number = std::to_string(threads_);
  if (!HasKnobs()) return number;
  const bool has_knob = plan_.columns || plan_.group <= 32 || plan_.parts > 1;
  const std::string threads = has_knob ? text_.KnobText("THREADS", threads_) : "256";
  if (plan_.columns || plan_.parts > 1) return threads;
  const std::string group = GroupText();
  if (group == std::to_string(group_)) return has_knob ? threads : number;
  return fmt::format("({0} > 32 ? {0} : {1})", group, threads);
}

std::string CudaReductionWriter::Grid() const {
  const int64_t rows = threads_ / group_, count = (planned_.outer + rows - 1) / rows;
  if (plan_.cluster > 1) return std::to_string(count * plan_.cluster);
  std::string blocks = std::to_string(count);
  if (HasKnobs()) {
    const std::string group = GroupText(), threads = Threads();
    if (group != threads && (group != std::to_string(group_) || threads != std::to_string(threads_)))
      blocks = fmt::format("ceil_div({}L, {} / {})", planned_.outer, threads, group);
  }
  if (plan_.parts == 1 || !blocks_have_parts_) return blocks;
  return fmt::format("dim3({}, {})", blocks, text_.KnobText("PARTS", plan_.parts));
}

int64_t CudaReductionWriter::SlotBytes() const {
  return plan_.cluster > 1 ? 16 * static_cast<int64_t>((work_.accumulators.size() + 1) / 2) : 0;
}

std::string CudaReductionWriter::SharedBytes() const {
  const int64_t kept = plan_.keep == Keep::kShared && !kept_.empty() ? SharedKept() : 0;
  return SlotBytes() + kept > 0 ? std::to_string(SlotBytes() + kept) : "";
}

int64_t CudaReductionWriter::SharedKept() const {
  int64_t bytes = 0;
  for (size_t i = 0; i < kept_[0].size(); ++i) bytes += (PackBytes(i) * PerBlock() + 15) / 16 * 16;
  return bytes;
}

int64_t CudaReductionWriter::PackBytes(size_t load) const {
  const bool is_long = kept_[0].TypeOf(load).find("long") != std::string::npos;
  const bool is_pack = kept_[0].TypeOf(load).rfind("Pack", 0) == 0;
  return (is_long ? 8 : 4) * (is_pack ? plan_.width : 1);
}

std::string CudaReductionWriter::Prologue() {
  const bool in_registers = plan_.keep == Keep::kRegisters && !kept_.empty();
  const int64_t each = in_registers ? std::max((PerBlock() + group_ - 1) / group_, plan_.each) : plan_.each;
  is_exact_ = !text_.shares() && each * group_ == PerBlock();
  // Kept in registers, or so few that one turn is enough: all packs of a thread are under way at once.
  const std::string group = GroupText();
  has_group_knob_ = group != std::to_string(group_);
  whole_ =
      plan_.parts == 1 && !IsNested() && each * group_ >= PerBlock() && (in_registers || !has_group_knob_);
  most_each_ = has_group_knob_ ? PerBlock() : each;
  std::string each_text = std::to_string(each);
  if (in_registers && has_group_knob_) each_text = fmt::format("({} + kGroup - 1) / kGroup", PerBlock());
  if (!in_registers && !whole_ && !IsNested() && HasKnobs()) each_text = text_.KnobText("EACH", each);
  std::string text =
      fmt::format("constexpr int kGroup = {}, kThreads = {}, kEach = {}, kRows = kThreads / kGroup;\n", group,
                  Threads(), each_text);
  // The last pass begins with what the one before read last.
  const bool backwards = plan_.parts > 1 && !partial_names_.empty() && is_end_ && blocks_have_parts_;
  std::string block = backwards ? "(gridDim.x - 1 - blockIdx.x)" : "blockIdx.x";
  if (IsWideCudaCount(planned_.outer)) block = "(unsigned long)" + block;
  text += plan_.columns ? "const int lane = kGroup == 1 ? 0 : threadIdx.x / kRows;\n"
                        : "const int lane = threadIdx.x % kGroup;\n";
  text += plan_.cluster > 1
              ? fmt::format("const {1} row = blockIdx.x / {0};\nconst unsigned part = blockIdx.x % {0};\n",
                            plan_.cluster, RowType())
              : fmt::format("const {} row = {} * kRows + threadIdx.x {};\n", RowType(), block,
                            plan_.columns ? "% kRows" : "/ kGroup");
  return text + Bounds(backwards);
}

// The outer point of the thread and the packs that it folds; the loads that all passes need.
std::string CudaReductionWriter::Bounds(bool backwards) {
  std::string text;
  const std::string outer = kernel_->Number(planned_.outer), row = RowType(), pack = PackType();
  text += fmt::format(
      "const bool is_there = row < ({1})({0});\nconst {1} point = is_there ? row : ({1})({0}) - 1;\n", outer,
      row);
  text += DecodeLoops(*printer_, work_.outer, "point");
  const std::string packs = kernel_->Number(planned_.packs);
  if (plan_.parts > 1) {
    text += fmt::format("const unsigned part = {0};\nconst {1} per_part = (({1})({2}) + {3}) / {4};\n",
                        backwards            ? "gridDim.y - 1 - blockIdx.y"
                        : blocks_have_parts_ ? "blockIdx.y"
                                             : "0",
                        pack, packs,
                        HasPartsKnob() ? fmt::format("({} - 1)", Parts()) : kernel_->Number(plan_.parts - 1),
                        Parts());
    text += fmt::format(
        "const {0} begin = min(part * per_part, ({0})({1})), end = min(begin + per_part, ({0})({1}));\n",
        pack, packs);
  } else if (plan_.cluster > 1) {
    text += fmt::format("const {0} begin = part * {1}, end = min(begin + {1}, ({0})({2}));\n", pack,
                        PerBlock(), packs);
  } else {
    text += fmt::format("const {} begin = 0, end = {};\n", pack, packs);
  }
  if (row_loads_->size() > 0) {
    text += row_loads_->Declarations() + row_loads_->Statements(*printer_, false);
    if (!plan_.columns) row_loads_->Bind(*printer_, "0");
  }
  if (!kept_.empty() && plan_.keep == Keep::kRegisters) text += kept_[0].Declarations();
  if (!SharedBytes().empty()) text += "extern __shared__ float4 shared[];\n";
  return text;
}

void WriteCudaReduction(CudaText& text, const Stage& stage, const Reduction& work) {
  CudaReductionWriter(text, stage, work).Write();
}

}  // namespace kevin::search
