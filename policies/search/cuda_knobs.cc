// Which knobs a CUDA text has: those of the stages that take most of the time.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "policies/search/cuda_recurrence.h"
#include "policies/search/cuda_text.h"

namespace kevin::search {
namespace {

constexpr size_t kMostKnobs = 8;
constexpr double kBytesPerSecond = 4.8e12, kFlopsPerSecond = 5e13;  // of an H200, roughly
constexpr double kStepSeconds = 1e-6;                               // of a loop that one kernel runs
constexpr double kSmallShare = 0.1;                                 // of the longest stage: not worth a knob

std::vector<Knob> KnobsOfStage(const CudaText& text, const Stage& stage) {
  if (const auto* pointwise = std::get_if<Pointwise>(&stage.work))
    return CudaPointwiseKnobs(text, stage, *pointwise);
  if (const auto* reduction = std::get_if<Reduction>(&stage.work))
    return CudaReductionKnobs(text, *reduction);
  if (const auto* scan = std::get_if<Scan>(&stage.work)) return CudaScanKnobs(text, *scan);
  if (const auto* contraction = std::get_if<Contraction>(&stage.work))
    return CudaContractionKnobs(text.program(), text.task(), *contraction);
  if (const auto* attention = std::get_if<Attention>(&stage.work))
    return CudaAttentionKnobs(text.program(), text.task(), *attention);
  return {};
}

// Loops that one kernel can run, by the number of their first stage: their stages have one knob, the choice of that
// kernel.
std::map<size_t, const Repeat*> CudaRecurrences(const Program& program, const Task& task) {
  std::map<size_t, const Repeat*> found;
  size_t number = 0;
  for (const Stage& stage : program.stages) {
    const auto* repeat = std::get_if<Repeat>(&stage.work);
    if (repeat) {
      const auto work = ReadCudaRecurrence(program, *repeat);
      if (work && PlanCudaRecurrence(*work, task.device)) found[number] = repeat;
    }
    number += repeat ? LeafStages(repeat->body).size() : 1;
  }
  return found;
}

}  // namespace

std::vector<int> CudaKnobOwners(const Program& program) {
  std::map<std::string, int> first;
  std::vector<int> owners;
  for (const Stage* stage : LeafStages(program)) {
    const int number = static_cast<int>(owners.size());
    owners.push_back(first.try_emplace(StageForm(program, *stage), number).first->second);
  }
  return owners;
}

std::vector<Knob> CudaKnobs(const Program& program, const Task& task) {
  const std::vector<const Stage*> stages = LeafStages(program);
  const std::vector<int> owners = CudaKnobOwners(program);
  std::vector<double> seconds(stages.size());
  for (size_t i = 0; i < stages.size(); ++i)
    seconds[static_cast<size_t>(owners[i])] +=
        std::max(stages[i]->bytes / kBytesPerSecond, stages[i]->flops / kFlopsPerSecond);
  const std::map<size_t, const Repeat*> recurrences = CudaRecurrences(program, task);
  std::vector<size_t> order;
  for (size_t i = 0; i < stages.size(); ++i) {
    const auto recurrence = recurrences.find(i);
    if (owners[i] == static_cast<int>(i)) order.push_back(i);
    if (recurrence == recurrences.end()) continue;
    seconds[i] = static_cast<double>(recurrence->second->times.extent) * kStepSeconds;
    i += recurrence->second->body.size() - 1;
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return seconds[a] > seconds[b]; });
  const Setting none;
  const CudaText text(program, task, none, CudaSharing::kNone);
  std::vector<Knob> knobs;
  for (const size_t i : order) {
    if (seconds[i] < kSmallShare * seconds[order[0]]) break;
    const std::vector<Knob> own =
        recurrences.count(i)
            ? std::vector<Knob>{{kCudaClusterKnob, {1, 0}, false, "one kernel for all steps"}}
            : KnobsOfStage(text, *stages[i]);
    for (Knob knob : own) {
      if (knobs.size() == kMostKnobs) return knobs;
      knob.name = CudaKnobName(knob.name, static_cast<int>(i));
      knob.stage = static_cast<int>(i);
      knobs.push_back(std::move(knob));
    }
  }
  return knobs;
}

}  // namespace kevin::search
