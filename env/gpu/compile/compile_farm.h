#pragma once
// START HERE for compiling. CUDA C++ or PTX text in, machine code out, without a GPU and without a CUDA toolkit:
// NVRTC runs in resident, sandboxed compiler processes (kevin-gpu-compiler), one per core, since it holds a process-
// wide lock. Results and errors are cached by content. Thread-safe: Compile() may be called from many threads; it
// blocks.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "env/environment.h"
#include "env/gpu/compile/gpu_module.h"

namespace kevin {

// The places of NVRTC, nvJitLink and the CUDA headers. Searched in this order, for each part: $KEVIN_CUDA
// (then nothing else), $CUDA_HOME, /usr/local/cuda, NVIDIA's wheels beside the torch that Kevin was built
// with, beside $KEVIN_TORCH, beside the torch of the python3 on the PATH. All paths are free of symbolic
// links.
struct CudaToolchain {
  std::filesystem::path nvrtc, nvjitlink;       // libraries; nvjitlink may be empty (no kind `ptx` then)
  std::vector<std::filesystem::path> includes;  // cuda_fp16.h, crt, CCCL
  std::string version;  // "NVRTC 13.0 (build), headers 13.0, CCCL 3.0.1", for the evaluation key
};
// Throws Error(kMachine) that names what to install when there is none.
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
  bool lines = false;                                      // the machine code tells lines of the text
};

struct GpuCompiled {
  GpuModule module;                              // empty cubin: it failed
  std::map<std::string, std::string> variables;  // name expression: name in the machine code
  std::string log;      // errors, or advice of the assembler; trimmed; with the candidate's line numbers
  std::string refused;  // not empty: compiled, but against a rule of inspect_ptx.h
  std::vector<std::string>
      notes;  // on accepted items without effect: "`#include <torch/extension.h>` is ignored"
  bool timed_out = false, cached = false;
  double seconds = 0;  // of the call, including the wait for a free compiler
};

class CompileFarm {
 public:
  // Starts threads; a compiler process starts with its first text. Throws Error when a program is missing or
  // the cache folder cannot be made.
  CompileFarm(CudaToolchain toolchain, CompileFarmOptions options);
  // No Compile() may be running.
  ~CompileFarm();
  CompileFarm(const CompileFarm&) = delete;
  CompileFarm& operator=(const CompileFarm&) = delete;
  // A text that exceeds the time limit times out; one that ends the compiler twice is an error of the text;
  // neither is cached. Throws Error(kBadRequest) for an include folder that cannot be read, Error(kMachine)
  // when the toolchain lacks a part, Error(kBroken) when the sandbox or the disk fails.
  GpuCompiled Compile(const GpuCompileRequest& asked);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kevin
