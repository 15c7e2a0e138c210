#pragma once
// Candidates in Python on a GPU, on the side of `kevin`: which Python judges them, what their import compiles, and the
// evaluator for them (env/gpu/judge/python_judge.h), a process beside that for `cuda` and `ptx`. Thread-safe.

#include <atomic>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "env/cpu/compile.h"
#include "env/environment.h"
#include "env/process/evaluator_client.h"
#include "env/python/python_kind.h"

namespace kevin {

struct GpuPythonOptions {
  EnvironmentOptions environment;
  int device = 0;
  bool namespaces = true;
  std::string architecture;                    // "sm_90a"
  std::string compiler;                        // version of the toolchain
  std::function<std::string()> trusted_cubin;  // the path of the trusted kernels
};

class GpuPython {
 public:
  explicit GpuPython(GpuPythonOptions options);
  ~GpuPython() { is_ending_ = true; }

  // Which Python, torch and toolchain: parts of an evaluation's key. Finds the Python at the first use; throws
  // Error(kMachine), with the command that installs it, where there is none with torch and CUDA.
  std::map<std::string, std::string> KeyParts();

  // Fills what BeginEvaluation began. The result names who else computed on the GPU meanwhile; empty: nobody. Throws Error
  // for what the candidate did not cause.
  std::string Evaluate(const Problem& problem, const Candidate& candidate, const EvaluateOptions& options,
                       Evaluation* evaluation);
  // The times of the stages that its text marks; nothing where it marks none, or its run fails. Throws Error like Evaluate.
  std::optional<Diagnosis> Diagnose(const Problem& problem, const Candidate& candidate,
                                    const EvaluateOptions& options);
  void ReleaseMemory() { evaluator_.TellIfStarted({{"command", "release"}}); }

 private:
  struct Side {
    PythonSetup setup;
    std::string isolation;
  };
  const Side& Python();
  Compiled Build(const Candidate& candidate, const EvaluateOptions& options);
  std::unique_ptr<EvaluatorClient> StartEvaluator();
  // Before the first candidate is built, on the thread of its evaluation: the evaluator, its first workers and the session are
  // made meanwhile. What fails is said by the evaluation.
  void StartEarly(const Problem& problem, const Workload& workload);

  GpuPythonOptions options_;
  std::filesystem::path runner_;
  std::mutex mutex_;
  std::optional<Side> side_;
  SharedEvaluator evaluator_{[this] { return StartEvaluator(); }};
  std::once_flag started_;
  std::atomic<bool> is_ending_ = false;
  std::future<void> preparing_;  // the first session; ends before evaluator_
};

}  // namespace kevin
