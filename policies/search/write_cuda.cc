#include <fmt/format.h>

#include <algorithm>

#include "policies/search/common_offsets.h"
#include "policies/search/cuda_recurrence.h"
#include "policies/search/cuda_text.h"

namespace kevin::search {
namespace {

// Numbers every stage, bodies of Repeat included, in order.
class CudaStageWriter {
 public:
  explicit CudaStageWriter(CudaText& text) : text_(text) {}
  // Writes the stage, or several in one launch; how many.
  size_t WriteFrom(const Program& program, size_t at) {
    text_.BeginStage(number_);
    const size_t joint = WriteCudaProductGroup(text_, at);
    number_ += static_cast<int>(joint);
    if (joint == 0) Write(program.stages[at]);
    return std::max<size_t>(joint, 1);
  }
  void Write(const Stage& stage) {
    if (const auto* repeat = std::get_if<Repeat>(&stage.work)) {
      text_.BeginStage(number_);
      if (WriteCudaRecurrence(text_, stage, *repeat)) {
        number_ += static_cast<int>(repeat->body.size());
        return;
      }
      const std::string turn = fmt::format("turn{}", text_.repeat_variables().size());
      text_.repeat_variables()[repeat->times.variable] = turn;
      text_.AddLine(fmt::format("for (int {0} = 0; {0} < {1}; ++{0}) {{", turn, repeat->times.extent));
      for (const Stage& inner : repeat->body) Write(inner);
      text_.AddLine("}");
      text_.repeat_variables().erase(repeat->times.variable);
      return;
    }
    text_.BeginStage(number_++);
    WriteCudaStage(text_, stage);
  }

 private:
  CudaText& text_;
  int number_ = 0;
};

void WriteByKind(CudaText& text, const Stage& stage) {
  if (const auto* pointwise = std::get_if<Pointwise>(&stage.work))
    return WriteCudaPointwise(text, stage, *pointwise);
  if (const auto* reduction = std::get_if<Reduction>(&stage.work))
    return WriteCudaReduction(text, stage, *reduction);
  if (const auto* scan = std::get_if<Scan>(&stage.work)) return WriteCudaScan(text, stage, *scan);
  if (const auto* attention = std::get_if<Attention>(&stage.work))
    return WriteCudaAttention(text, stage, *attention);
  const auto& contraction = std::get<Contraction>(stage.work);
  if (!WriteCudaContraction(text, stage, contraction)) WriteCudaPlainContraction(text, stage, contraction);
}

}  // namespace

void WriteCudaStage(CudaText& text, const Stage& stage) {
  // Operands of contractions are addressed by parts that are arguments anyway.
  if (text.sharing() != CudaSharing::kForms || std::holds_alternative<Contraction>(stage.work))
    return WriteByKind(text, stage);
  Stage moved = stage;
  const auto aligned = [&](int buffer) { return 16 / text.ElementBytes(buffer); };  // of packs
  text.SetCommonOffsets(TakeCommonOffsets(text.program(), moved, aligned));
  WriteByKind(text, moved);
  text.SetCommonOffsets({});
}

std::string WriteCuda(const Program& program, const Task& task, const Setting& setting) {
  // Literals are faster; where the stages differ too much for 40 kernels, they share more.
  const std::vector<int> owners = CudaKnobOwners(program);
  const bool is_deep = owners.size() > 2 * kMostFunctions;
  for (const CudaSharing sharing : {CudaSharing::kNone, CudaSharing::kSizes, CudaSharing::kForms}) {
    if (is_deep && sharing == CudaSharing::kNone) continue;
    CudaText text(program, task, setting, sharing, owners);
    CudaStageWriter writer(text);
    const bool is_last = sharing == CudaSharing::kForms;
    for (size_t at = 0; at < program.stages.size();) {
      if (text.kernels() > kMostFunctions && !is_last) break;
      at += writer.WriteFrom(program, at);
    }
    if (text.kernels() <= kMostFunctions || is_last) return WithCudaPrelude(text.Finish());
  }
  return "";
}

}  // namespace kevin::search
