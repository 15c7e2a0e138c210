#pragma once
// What the benchmarks of compiling share: texts as models write them, and a compile farm whose cache is
// empty.

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "env/gpu/compile/compile_farm.h"

namespace kevin {

struct CompileSource {
  const char* name;
  const char* text;  // has a kernel `kernel`; @ stands for a number that makes each one another text
};
// ReLU, softmax, wmma matmul, cooperative groups, CUB, in this order.
std::span<const CompileSource> CompileSources();

// A farm with a cache folder of its own, which goes when it goes. Needs no GPU. Milliseconds() may be called
// from many threads.
class BenchCompiler {
 public:
  // Throws Error(kMachine) when there is no toolchain.
  BenchCompiler();
  ~BenchCompiler();
  // Starts a compiler and waits for 15 s, in which idle compilers precompile headers.
  void WarmUp();
  // Compiles for sm_90a. Throws Error(kBroken) unless the text compiles and has not been seen before.
  double Milliseconds(const CompileSource& source, int number);
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
