#pragma once
// Measures torch.compile against eager for one problem: starts a Python that has torch and has it run
// env/python/torch_compile.py, which compiles and times. The one place where Kevin uses Python.

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>

#include "env/gpu/find_gpus.h"
#include "env/problem/problem.h"
#include "env/python/baseline_store.h"

namespace kevin {

// A Python that can import torch, and that torch's version.
struct PythonTorch {
  std::filesystem::path python;
  std::string torch_version;  // "2.11.0+cu130"
};

// ../share/kevin/torch_compile.py beside the program, else the source tree's that it was built from.
std::filesystem::path TorchCompileScript();

// What it is for, as messages say it, and whether its torch must have CUDA.
struct PythonUse {
  std::string what = "torch.compile";
  bool cuda = true;
};

// $KEVIN_PYTHON (a path, or a name on the PATH), else python3 on the PATH. Does not import torch, so it takes
// tens of milliseconds. Throws Error(kMachine) when there is none that will do.
PythonTorch FindPythonTorch(const std::filesystem::path& script = TorchCompileScript(),
                            const PythonUse& use = {});

struct TorchCompileRequest {
  std::string size = "full";
  bool tf32 = false;
  GpuFound gpu;
  PythonTorch python;
  std::filesystem::path script = TorchCompileScript();
  double limit_s = 900;  // of everything but waiting for the GPU's lock
  double measure_s = 2;  // of taking pairs; there are 20 at least
  std::function<void(const std::string& phase)>
      on_phase;                             // "import torch", "compile", "measure"; may be empty
  const std::atomic<bool>* stop = nullptr;  // not owned; once true, it ends as interrupted
};

// The key that its result has.
BaselineKey KeyOfBaseline(const Problem& problem, const std::string& size, bool tf32, const GpuFound& gpu);

// Blocks, some 30 s. What is wrong with this problem (it does not compile, it takes too long, its answers
// differ) is the result's `failure`; nothing is stored. Shares the GPU's lock while it compiles and holds it
// alone while it measures. Throws Error: kMachine when this Python can use no GPU, kBroken when it ends
// without an answer of its own, kInterrupted after `stop`.
Baseline MeasureTorchCompile(const Problem& problem, const TorchCompileRequest& request);

}  // namespace kevin
