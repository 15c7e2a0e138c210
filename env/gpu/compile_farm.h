#pragma once
// CUDA C++ or PTX text in, machine code out, with no GPU and no CUDA toolkit: NVRTC in resident, sandboxed
// compiler processes (kevin-gpu-compiler), one per core, since NVRTC holds a process-wide lock. Results and
// errors are cached by content. Thread-safe: Compile() may be called from many threads and blocks.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "env/environment.h"
#include "env/gpu/gpu_module.h"

namespace kevin {

// Where NVRTC, nvJitLink and the CUDA headers are: $KEVIN_CUDA, a CUDA toolkit, the wheels beside torch.
struct CudaToolchain {
  std::filesystem::path nvrtc, nvjitlink;       // libraries; nvjitlink may be empty (no kind `ptx` then)
  std::vector<std::filesystem::path> includes;  // cuda_runtime.h, cccl
  std::string version;                          // "NVRTC 13.0", for the evaluation key
};
// Throws Error(kMachine) that says what to install when there is none.
CudaToolchain FindCudaToolchain();

struct CompileFarmOptions {
  std::filesystem::path compiler_program;  // kevin-gpu-compiler
  std::filesystem::path runner_program;    // kevin-runner, for its `exec` sandbox
  std::filesystem::path cache_directory;
  int64_t cache_limit_bytes = int64_t{2} << 30;  // the least recently used entries go first
  int processes = 0;                             // 0: one per core
  bool namespaces = true;
  Limits limits;
};

struct GpuCompileRequest {
  std::string kind = "cuda";         // or "ptx"
  std::string device_text;           // SplitCandidate::device_text
  std::vector<std::string> kernels;  // name expressions (kind ptx: entry names)
  Symbols symbols;                   // constants in scope
  std::string architecture = "sm_90a";
  std::vector<std::filesystem::path> include_directories;  // --include
  bool debug = false;                                      // printf is allowed; never for a speed-up
};

struct GpuCompiled {
  GpuModule module;                // empty cubin: it failed
  std::string log;                 // errors or warnings, trimmed; lines are the candidate's own
  std::string refused;             // not empty: compiled, but breaks a rule of inspect_ptx.h
  std::vector<std::string> notes;  // habits that cost nothing: "`#include <torch/extension.h>` is ignored"
  bool timed_out = false, cached = false;
  double seconds = 0;
};

class CompileFarm {
 public:
  CompileFarm(CudaToolchain toolchain, CompileFarmOptions options);
  ~CompileFarm();
  GpuCompiled Compile(const GpuCompileRequest& request);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kevin
