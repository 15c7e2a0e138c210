#pragma once
// A candidate's text as the plan of launches and the machine code that a GPU's runner loads: the launch function is
// interpreted (env/gpu/launch), the device code compiled and inspected (env/gpu/compile). No GPU is touched. Thread-safe.

#include <optional>
#include <string>
#include <vector>

#include "env/environment.h"
#include "env/gpu/compile/compile_farm.h"
#include "env/gpu/compile/gpu_module.h"
#include "env/gpu/find_gpus.h"
#include "env/gpu/launch/launch_function.h"
#include "env/gpu/runner/launch_plan.h"
#include "env/problem/problem.h"

namespace kevin {

// A candidate as machine code, or its failure.
struct GpuBuild {
  std::optional<Outcome> failure;  // CompileFailed, Refused or TimedOut
  LaunchPlan plan;
  LaunchList list;
  GpuModule module;
  std::string log;  // notes and the compiler's messages
  double compile_s = 0;
};

// kJudge: without line numbers, which take a twentieth of the compilation and most of a cubin. kExamine: with them; the
// machine code is the same. kDebug: with them, and printf is allowed.
enum class BuildPurpose { kJudge, kExamine, kDebug };

class GpuBuilder {
 public:
  // Throws Error(kMachine) where NVRTC or a program of Kevin's is missing.
  GpuBuilder(const EnvironmentOptions& options, const GpuFound& gpu);

  GpuBuild Build(const SizedProblem& sized, const Candidate& candidate,
                 BuildPurpose purpose = BuildPurpose::kJudge);

  // Registers, memory and occupancy of each launch.
  static std::vector<KernelReport> Reports(const GpuBuild& build, const MultiprocessorLimits& limits);

  // The path of Kevin's own kernels (env/gpu/runner/device_memory.h) as machine code; compiled at first. Throws
  // Error(kMachine) where NVRTC does not compile them, Error(kBroken) where they cannot be written.
  std::string TrustedCubin();

  const std::string& architecture() const { return architecture_; }  // "sm_90a"
  const std::string& compiler() const { return toolchain_.version; }

 private:
  const EnvironmentOptions options_;
  const std::string architecture_;
  const CudaToolchain toolchain_;
  CompileFarm farm_;
};

}  // namespace kevin
