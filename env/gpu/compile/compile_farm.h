#pragma once
// CUDA C++ or PTX text in, machine code out, with no GPU and no CUDA toolkit: NVRTC in resident, sandboxed
// compiler processes (kevin-gpu-compiler), one per core, since NVRTC holds a process-wide lock. Results and
// errors are cached by content. Thread-safe: Compile() may be called from many threads and blocks.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "env/environment.h"
#include "env/gpu/compile/gpu_module.h"

namespace kevin {

// Where NVRTC, nvJitLink and the CUDA headers are. Looked at in this order, part by part: $KEVIN_CUDA (then
// nothing else), $CUDA_HOME, /usr/local/cuda, NVIDIA's wheels beside the torch that Kevin was built with,
// beside $KEVIN_TORCH, beside the torch of the python3 on the PATH. All paths are real ones, without links.
struct CudaToolchain {
  std::filesystem::path nvrtc, nvjitlink;       // libraries; nvjitlink may be empty (no kind `ptx` then)
  std::vector<std::filesystem::path> includes;  // cuda_fp16.h, crt, CCCL
  std::string version;  // "NVRTC 13.0 (build), headers 13.0, CCCL 3.0.1", for the evaluation key
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
  Limits limits;  // compile_timeout_s, compile_memory_mb, max_log_bytes
};

struct GpuCompileRequest {
  std::string kind = "cuda";           // or "ptx"
  std::string device_text;             // SplitCandidate::device_text
  std::vector<std::string> kernels;    // name expressions (kind ptx: entry names)
  std::vector<std::string> variables;  // name expressions of __constant__ variables that need values
  Symbols symbols;                     // constants in scope (kind cuda)
  std::string architecture = "sm_90a";
  std::vector<std::filesystem::path> include_directories;  // --include
  bool debug = false;                                      // printf is allowed; never for a speed-up
};

struct GpuCompiled {
  GpuModule module;                              // empty cubin: it failed
  std::map<std::string, std::string> variables;  // name expression: name in the machine code
  std::string log;                 // errors or the assembler's advice, trimmed; lines are the candidate's own
  std::string refused;             // not empty: compiled, but breaks a rule of inspect_ptx.h
  std::vector<std::string> notes;  // habits that cost nothing: "`#include <torch/extension.h>` is ignored"
  bool timed_out = false, cached = false;
  double seconds = 0;  // from the call to its end, waiting for a free compiler included
};

class CompileFarm {
 public:
  // Starts threads; a compiler process starts with its first text. Throws Error when a program is missing or
  // the cache folder cannot be made.
  CompileFarm(CudaToolchain toolchain, CompileFarmOptions options);
  // Must not be called while a Compile() goes on.
  ~CompileFarm();
  CompileFarm(const CompileFarm&) = delete;
  CompileFarm& operator=(const CompileFarm&) = delete;
  // A text that takes too long times out; one that ends the compiler twice is an error of the text; neither
  // is cached. Throws Error(kBadRequest) for an include folder that cannot be read, Error(kMachine) when the
  // toolchain lacks what is asked for, Error(kBroken) when the sandbox or the disk fails.
  GpuCompiled Compile(const GpuCompileRequest& asked);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kevin
