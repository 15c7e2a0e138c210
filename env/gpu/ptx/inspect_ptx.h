#pragma once
// Reads a module's PTX before anything runs: everything in the machine code comes from there. Refused are
// things that only serve to fool a clock or a checker or that outlive a launch: clock and globaltimer reads,
// device-side launch, printf and traps, functions from elsewhere, textures, instructions outside an
// allow-list (ptx_rules.h; it covers what the compiler writes and what inline assembly may), more than a
// little writable global memory (what there is gets restored before every call). What this reader cannot
// understand is refused too. Pure; thread-safe.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "env/gpu/compile/gpu_module.h"

namespace kevin {

// All variables that the machine code has, also those that no kernel names: headers leave hundreds of bytes
// of small constants in `.global`, and a stray pointer reaches them.
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

// `debug`: printf is allowed.
PtxReport InspectPtx(const std::string& ptx, bool debug);

}  // namespace kevin
