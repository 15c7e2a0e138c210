#pragma once
// KernelBench's own verdict on a candidate in Python, by its method (env/python/kernelbench_judge.py), for comparison with
// Kevin's. It is a measurement of that method: the candidate runs beside the comparison and the clock, and could forge both.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "env/environment.h"
#include "env/gpu/find_gpus.h"
#include "env/python/python_process.h"
#include "env/python/python_workers.h"

namespace kevin {

struct KernelBenchVerdict {
  bool compiled = false, correct = false;
  std::string reason;  // why it is not correct
  int trials = 0, trials_passed = 0;
  double tolerance = 0, max_difference = 0;                // 0: none was computed
  double candidate_ms = 0, reference_ms = 0, speedup = 0;  // means; 0: not timed
  int timed_calls = 0;
  bool excessive_speedup = false;  // more than 10: flagged, and still correct
  // With KernelBench's own file, where its inputs have other shapes than Kevin's: "16 x 16384 in place of 4 x 8".
  std::string other_shapes;
  std::vector<std::vector<int64_t>> input_shapes;  // as the process says; not kept
  std::vector<std::string> differs;                // from KernelBench, in words
};
nlohmann::ordered_json ToJson(const KernelBenchVerdict& verdict);
KernelBenchVerdict KernelBenchVerdictFromJson(const nlohmann::ordered_json& json);

struct KernelBenchJudgeOptions {
  EnvironmentOptions environment;  // where programs and the cache are, threads
  std::string compiler;            // version, as Kevin's own build of the candidate has it (EnvironmentFacts)
  std::optional<GpuFound> gpu;     // to judge on; nothing: the CPU
  double limit_s = 600;            // of the whole; more is a verdict with this reason
  double timing_limit_s = 20;      // of a side: then fewer than 100 calls are timed
  const std::atomic<bool>* stop = nullptr;
};

// Builds the candidate (or takes the cached build) and judges it in a sandboxed Python. `own_file`: the text of KernelBench's
// own problem file; empty: PythonModel(sized). Throws Error(kMachine) where this machine cannot, and for broken infrastructure.
KernelBenchVerdict JudgeAsKernelBench(const KernelBenchJudgeOptions& options, const SizedProblem& sized,
                                      const Candidate& candidate, const std::string& own_file);

// Reads lines of kernelbench_judge.py until the verdict. From its first phase on, all that the process writes and how it ends
// may be the candidate's doing: no such thing is an Error.
KernelBenchVerdict ReadKernelBenchVerdict(const KernelBenchJudgeOptions& options, PythonProcess* process);

}  // namespace kevin
