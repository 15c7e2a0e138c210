#pragma once
// What NVIDIA's tools (env/gpu/examine/examiner.h) say of a built candidate, where they are installed: machine code, output,
// checks of memory, hardware counters, the line of a crash. Each call of a candidate is in exclusive execution of the GPU.
// Nothing of it changes an outcome or a time. Thread-safe.

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "env/environment.h"
#include "env/gpu/examine/examiner.h"
#include "env/gpu/gpu_build.h"
#include "env/problem/problem.h"

namespace kevin {

struct ExamineOptions {
  std::string size = "small";
  std::string inputs = "default";
  bool sass = false;                // the machine code as text
  bool debug = false;               // make one call with printf allowed, and return its output
  std::vector<std::string> checks;  // of compute-sanitizer: "memcheck", "racecheck", "initcheck"
};

struct Examination {
  std::string failure;  // why it cannot be examined: it does not compile, or is refused
  std::string sass;
  std::string printed;
  std::vector<CheckReport> checks;
};

struct GpuExaminerOptions {
  EnvironmentOptions environment;
  int device = 0;
  std::string lock_name;  // of the device
  bool namespaces = true;
  std::function<std::string()> trusted_cubin;  // the path of the trusted kernels
};

class GpuExaminations {
 public:
  explicit GpuExaminations(GpuExaminerOptions options) : options_(std::move(options)) {}

  // Throws Error(kMachine) when a required tool is missing.
  Examination Examine(const SizedProblem& sized, const GpuBuild& built, const ExamineOptions& options) const;

  // Adds the line and the tool's words to a crash, where compute-sanitizer finds the same one. `built`: kExamine.
  void NameCrashedLine(const SizedProblem& sized, const GpuBuild& built, const EvaluateOptions& options,
                       Evaluation* evaluation) const;

  // Fills evaluation->profile. Each evaluation writes a report of its own: NAME, NAME-2, ...
  void ReadCounters(const SizedProblem& sized, const std::string& plan, const EvaluateOptions& options,
                    Evaluation* evaluation);

 private:
  Examiner MakeExaminer(const std::string& inputs, double timeout_s) const;

  const GpuExaminerOptions options_;
  std::atomic<int> reports_ = 0;  // of the profiler, written so far
};

}  // namespace kevin
