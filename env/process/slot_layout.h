#pragma once
// Where the tensors of every slot lie in the two shared memories, and how many slots a GPU has room for. Each
// tensor starts on a page of its own, a parameter block (env/problem/problem.h) too; outputs are fenced by a page on
// either side. Pure; the same on a CPU and on a GPU.

#include <cstddef>
#include <vector>

#include "env/problem/problem.h"
#include "env/process/runner_protocol.h"

namespace kevin {

inline constexpr int64_t kSlotPage = 4096;

struct SlotLayout {
  std::vector<ArgumentPlace> tensors;    // the problem's inputs and parameters, then its outputs
  std::vector<ArgumentPlace> arguments;  // the same memory as `launch` takes it (SizedProblem::arguments)
  int64_t inputs_bytes = 0, outputs_bytes = 0;  // of all slots
};
SlotLayout LayOutSlots(const SizedProblem& problem, int slots);

// Of one slot, in whole pages, without guard bands.
int64_t SlotInputBytes(const SizedProblem& problem);
int64_t SlotOutputBytes(const SizedProblem& problem);

inline constexpr int kMaxSlotsOnGpu = 6;

// At least 1. Where even that does not fit: Error(kBadRequest) that offers a size of the problem that does,
// or Error(kMachine) if none does.
int SlotsOnGpu(const SizedProblem& problem, size_t free_bytes);

}  // namespace kevin
