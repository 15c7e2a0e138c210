#pragma once
// What the GPU benchmarks judge and compile: texts of kernels, and a compile farm with an empty cache.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "env/gpu/compile/compile_farm.h"
#include "env/problem/problem.h"

namespace kevin {

// --- Candidates of kind `cuda`, for bench_gpu ---

// The search policy's first kernel for the problem at size full, for an H200; kevin-evaluator gives its graph.
std::string SearchKernel(const Problem& problem);

// The same kernel with another text and another cubin: a comment is added, and the kernels' names end in
// `mark`, which must be a part of an identifier. Throws Error(kBroken) when the text has no kernel.
std::string Variant(const std::string& source, const std::string& mark);

// Writes zeros to every output of the problem at size full: incorrect.
std::string ZeroKernel(const Problem& problem);
// `source` with a syntax error in a device function above it.
std::string BrokenKernel(const std::string& source);

// ReLU of `elements` (a multiple of 4) float32 numbers, at size full.
Problem ReluProblem(int64_t elements);

// For ReluProblem: one float4 a thread. Every thread adds zero `steps` times between its load and its store,
// each addition after the one before; the result is the same. How much longer the kernel takes depends on how
// much of it memory accesses hide (CalibrateDelay).
std::string DelayedRelu(int steps);

// For ReluProblem: the form of eager's own vectorised kernel, 4 independent float4 a thread, 128 threads a
// block.
std::string EagerFormRelu();

// --- Compiling ---

struct CompileSource {
  const char* name;
  const char* text;  // defines a kernel `kernel`; a number replaces @ and makes each text distinct
};
// ReLU, softmax, wmma matmul, cooperative groups, CUB, in this order.
std::span<const CompileSource> CompileSources();

// A compile farm with a cache folder of its own, which the destructor removes. Needs no GPU. Milliseconds()
// may be called from many threads.
class BenchCompiler {
 public:
  // `processes`: 0: one a core. Throws Error(kMachine) when there is no toolchain.
  explicit BenchCompiler(int processes = 0);
  ~BenchCompiler();
  // Starts a compiler and waits for 15 s, in which idle compilers precompile headers.
  void WarmUp();
  // Compiles for sm_90a. Throws Error(kBroken) when the text does not compile or was compiled before.
  double Milliseconds(const CompileSource& source, int number);
  GpuCompiled Compile(const GpuCompileRequest& request) { return farm_->Compile(request); }
  struct Times {
    double first_ms = 0;
    std::vector<double> later_ms;  // in order of time; the second text is left out
  };
  // Numbers 0 to count + 1.
  Times OneAfterAnother(const CompileSource& source, int count);
  const CudaToolchain& toolchain() const { return toolchain_; }

 private:
  std::filesystem::path folder_;
  CudaToolchain toolchain_;
  std::unique_ptr<CompileFarm> farm_;
};

}  // namespace kevin
