#include "env/process/slot_layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "env/error.h"
#include "env/problem/precision.h"

namespace kevin {
namespace {

int64_t Pages(int64_t bytes) { return (bytes + kSlotPage - 1) / kSlotPage * kSlotPage; }

bool IsOutput(const SizedProblem& problem, size_t argument) {
  return argument + problem.outputs.size() >= problem.arguments.size();
}

int64_t Bytes(const SizedProblem& problem, bool outputs) {
  int64_t bytes = 0;
  for (size_t i = 0; i < problem.arguments.size(); ++i) {
    if (IsOutput(problem, i) == outputs) bytes += Pages(problem.arguments[i].bytes);
  }
  return bytes;
}

int64_t SlotBytes(const SizedProblem& problem) {
  return SlotInputBytes(problem) + SlotOutputBytes(problem) +
         static_cast<int64_t>(problem.outputs.size()) * 2 * kSlotPage;
}

// The reference's own tensors and the truth, which are twice as wide (of 16-bit types four times), need some
// five slots' worth.
int64_t SlotsForReference(const SizedProblem& problem) {
  return PrecisionOf(*problem.problem) == Precision::kFp32 ? 5 : 10;
}

int64_t SlotsWithRoom(const SizedProblem& problem, size_t free_bytes) {
  const int64_t usable = static_cast<int64_t>(static_cast<double>(free_bytes) * 0.9);
  return usable / SlotBytes(problem) - SlotsForReference(problem);
}

double Gib(double bytes) { return bytes / (1 << 30); }

}  // namespace

int64_t SlotInputBytes(const SizedProblem& problem) { return Bytes(problem, false); }
int64_t SlotOutputBytes(const SizedProblem& problem) { return Bytes(problem, true); }

SlotLayout LayOutSlots(const SizedProblem& problem, int slots) {
  SlotLayout layout;
  for (size_t i = 0; i < problem.arguments.size(); ++i) {
    const bool output = IsOutput(problem, i);
    const int64_t guard = output ? kSlotPage : 0, stride = Pages(problem.arguments[i].bytes) + 2 * guard;
    int64_t* bytes = output ? &layout.outputs_bytes : &layout.inputs_bytes;
    layout.arguments.push_back(
        {output, static_cast<uint64_t>(*bytes + guard), static_cast<uint64_t>(stride)});
    *bytes += stride * slots;
  }
  layout.tensors = layout.arguments;
  if (!HasParamBlock(*problem.problem)) return layout;
  const auto block = layout.tensors.end() - static_cast<std::ptrdiff_t>(problem.outputs.size()) - 1;
  std::vector<ArgumentPlace> params;
  for (const ConcreteTensor& input : problem.inputs) {
    if (!input.spec.is_param) continue;
    const int64_t offset = problem.symbols.at(OffsetName(input.spec.name)) * DTypeBytes(input.spec.dtype);
    params.push_back({false, block->offset + static_cast<uint64_t>(offset), block->stride});
  }
  layout.tensors.insert(layout.tensors.erase(block), params.begin(), params.end());
  return layout;
}

int SlotsOnGpu(const SizedProblem& problem, size_t free_bytes) {
  const int64_t slots = SlotsWithRoom(problem, free_bytes);
  if (slots >= 1) return static_cast<int>(std::min<int64_t>(slots, kMaxSlotsOnGpu));
  const std::string what = fmt::format(
      "{} at size {} needs about {:.1f} GiB of GPU memory and {:.1f} GiB are free", problem.problem->id,
      problem.size, Gib(static_cast<double>((SlotsForReference(problem) + 1) * SlotBytes(problem)) / 0.9),
      Gib(static_cast<double>(free_bytes)));
  // The largest that fits: its figures say most.
  std::string fitting;
  int64_t largest = 0;
  for (const auto& [name, symbols] : problem.problem->sizes) {
    const SizedProblem other = AtSize(*problem.problem, name);
    if (SlotsWithRoom(other, free_bytes) < 1 || SlotBytes(other) <= largest) continue;
    largest = SlotBytes(other);
    fitting = name;
  }
  if (!fitting.empty()) throw Error(ExitCode::kBadRequest, what, "use --size " + fitting);
  throw Error(
      ExitCode::kMachine, what,
      "free memory on the GPU (nvidia-smi shows who has it), or write a smaller size into the problem "
      "file");
}

}  // namespace kevin
