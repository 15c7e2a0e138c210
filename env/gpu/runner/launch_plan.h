#pragma once
// A candidate ready to run: machine code and its launch list, with every kernel resolved and every argument
// encoded. It travels from Kevin to the evaluator and on to the runner, as JSON text.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "env/gpu/compile/gpu_module.h"
#include "env/gpu/launch/launch_list.h"
#include "env/gpu/ptx/inspect_ptx.h"

namespace kevin {

struct PlannedLaunch {
  KernelLaunch launch;
  std::string lowered_name;
  EncodedArguments arguments;
};
using PlannedOperation = std::variant<PlannedLaunch, MemorySet, MemoryCopy>;

struct LaunchPlan {
  std::string cubin;
  std::vector<Workspace> workspaces;
  std::vector<PlannedOperation> operations;
  std::vector<std::pair<std::string, ConstantValue>> constants;  // by the name in the machine code
  std::vector<GlobalVariable> globals;                           // writable ones, restored before every call
};

// Combines list and module. `variables` gives the names in the machine code of the constants that the list
// sets. `error` names, for the author, the launch that does not fit its kernel; empty: all fit.
LaunchPlan MakeLaunchPlan(const LaunchList& list, const GpuModule& module,
                          const std::vector<GlobalVariable>& globals,
                          const std::map<std::string, std::string>& variables, std::string* error);

std::string LaunchPlanToText(const LaunchPlan& plan);
// Throws Error(kBroken) when the text is not a plan.
LaunchPlan LaunchPlanFromText(const std::string& text);

// Bytes as text and back, two digits a byte. Throws Error(kBroken) on anything else.
std::string HexText(const std::string& bytes);
std::string BytesFromHex(const std::string& text);

}  // namespace kevin
