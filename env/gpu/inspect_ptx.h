#pragma once
// Reads a module's PTX before anything runs: everything in the machine code comes from there. Refused are
// things that only serve to fool a clock or a checker or that outlive a launch: clock and globaltimer reads,
// device-side launch, printf and traps, unknown calls, inline assembly outside an allow-list, more than a
// little writable global memory (what there is gets restored before every call).

#include <cstdint>
#include <string>
#include <vector>

#include "env/gpu/gpu_module.h"

namespace kevin {

struct GlobalVariable {
  std::string name;  // in the machine code
  int64_t bytes = 0;
  bool constant = false;  // .const
};

struct PtxReport {
  std::string refused;  // empty, or why, for the policy: what to do instead
  std::vector<GlobalVariable> globals;
  std::vector<std::pair<std::string, std::vector<KernelParameter>>> entries;  // lowered name, parameters
};

inline constexpr int64_t kMaxWritableGlobalBytes = 64 << 10;

PtxReport InspectPtx(const std::string& ptx, bool debug);

}  // namespace kevin
