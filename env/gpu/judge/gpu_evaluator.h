#pragma once
// The evaluator for candidates of a GPU: holds reference, truth, clock and verdict, and answers requests on
// descriptor 3 (env/process/wire.h) until it closes.

#include <functional>
#include <string>

namespace kevin {

struct GpuEvaluatorOptions {
  int device = 0;
  std::string runner;  // kevin-gpu-runner
  bool namespaces = true;
  std::string trusted_cubin;  // path of the compiled trusted kernels
  // Of an evaluator for candidates in Python: a PythonSetup as JSON; empty: it is one for `cuda` and `ptx`.
  std::string python_setup = {};
  // Called once, when the driver is open and before the first request is read; may be empty.
  std::function<void()> enter_sandbox = {};
};

// The file of the plug-in, beside kevin-evaluator. Its one function serves requests until descriptor 3
// closes.
inline constexpr const char* kGpuJudgePlugin = "kevin-gpu-judge.so";

}  // namespace kevin

extern "C" int KevinServeGpu(const kevin::GpuEvaluatorOptions* options);
