#pragma once
// Measures torch.compile against eager for one problem: finds a Python with torch and runs
// env/python/torch_compile.py in it, which compiles and times.

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "env/gpu/find_gpus.h"
#include "env/problem/problem.h"
#include "env/python/baseline_store.h"

namespace kevin {

// A Python that can import torch, and that torch's version.
struct PythonTorch {
  std::filesystem::path python;
  std::string torch_version;         // "2.11.0+cu130"
  std::vector<std::string> folders;  // that it imports from
};

// ../share/kevin/torch_compile.py beside the program, else the source tree's that it was built from.
std::filesystem::path TorchCompileScript();

// The purpose, for messages, and whether torch must have CUDA.
struct PythonUse {
  std::string what = "torch.compile";
  bool cuda = true;
};

// $KEVIN_PYTHON (a path, or a name on the PATH), else python3 on the PATH. Does not import torch; takes tens
// of milliseconds. Throws Error(kMachine) if there is no suitable Python.
PythonTorch FindPythonTorch(const PythonUse& use = {});

struct TorchCompileRequest {
  std::string size = "full";
  bool tf32 = false;
  std::string mode = "default";  // one of TorchCompileModes
  GpuFound gpu;
  PythonTorch python;
  std::filesystem::path script = TorchCompileScript();
  double limit_s =
      900;  // of all work, without waiting for the GPU's lock; four times that in modes that tune
  double measure_s = 2;  // of pairs; there are at least 20
  // The reference is the text of others. False: without a sandbox, for a script that runs none of it.
  bool sandboxed = true;
  std::function<void(const std::string& phase)>
      on_phase;                             // "import torch", "compile", "measure"; may be empty
  const std::atomic<bool>* stop = nullptr;  // not owned; true interrupts the measurement
};

// The values of torch.compile's `mode` that can be measured. Of those that tune, "max-autotune" also replays CUDA
// graphs: each call copies its inputs to where the graph reads them. The clock does not measure gaps between launches,
// which is what they save.
std::vector<std::string> TorchCompileModes();

// The key of its result.
BaselineKey KeyOfBaseline(const Problem& problem, const std::string& size, bool tf32, const GpuFound& gpu,
                          const std::string& mode = "default");

// Blocks, about 30 s, minutes in modes that tune. An error of this problem (it does not compile, takes too long, or
// its results differ) is the result's `failure`. Stores nothing. Holds the GPU's lock shared while it compiles
// (exclusively in modes that tune) and exclusively while it measures. Throws Error: kMachine if this Python cannot use
// a GPU, kBroken if it ends without an answer, kInterrupted after `stop`. The script runs in a sandbox (PythonSandbox),
// its cache in a folder that is removed.
Baseline MeasureTorchCompile(const Problem& problem, const TorchCompileRequest& request);

}  // namespace kevin
