#include <fmt/format.h>

#include <algorithm>

#include "policies/search/common_offsets.h"
#include "policies/search/cuda_recurrence.h"
#include "policies/search/cuda_text.h"
#include "policies/search/stage_use.h"

namespace kevin::search {
namespace {

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
    // Operands of contractions are addressed by parts that are arguments anyway.
    if (text_.sharing() != CudaSharing::kForms || std::holds_alternative<Contraction>(stage.work))
      return WriteOnce(stage);
    Stage moved = stage;
    const auto aligned = [&](int buffer) { return 16 / text_.ElementBytes(buffer); };  // of packs
    text_.SetCommonOffsets(TakeCommonOffsets(text_.program(), moved, aligned));
    WriteOnce(moved);
    text_.SetCommonOffsets({});
  }

 private:
  // A deep network repeats its stages: of equal ones with the same knobs one is written.
  void WriteOnce(const Stage& stage) {
    std::vector<int> buffers = BuffersRead(stage);
    const std::vector<int> written = BuffersWritten(stage);
    buffers.insert(buffers.end(), written.begin(), written.end());
    std::sort(buffers.begin(), buffers.end());
    buffers.erase(std::unique(buffers.begin(), buffers.end()), buffers.end());
    const std::string key = text_.repeat_variables().empty() ? StageKey(text_.program(), stage, buffers) : "";
    if (key.empty()) return WriteByKind(text_, stage);
    const auto [found, is_new] = recipes_.try_emplace({key, text_.stage_number()});
    CudaRecipe& recipe = found->second;
    if (!is_new && recipe.is_repeatable) return text_.Repeat(recipe, buffers);
    if (!is_new) return WriteByKind(text_, stage);
    recipe.buffers = buffers;
    text_.Record(&recipe);
    WriteByKind(text_, stage);
    text_.Record(nullptr);
  }

  CudaText& text_;
  int number_ = 0;
  std::map<std::pair<std::string, int>, CudaRecipe> recipes_;  // by StageKey and the stage with the knobs
};

}  // namespace

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
