#pragma once
// Compiles many generated kernels in a few runs of g++ and loads them. CUDA kernels are first rewritten as
// C++ that runs on cuda_on_cpu.h.

#include <string>
#include <vector>

namespace kevin::test {

class KernelLibrary {
 public:
  // Each source is a complete candidate. `flags` follow -std=c++20 -march=native -fopenmp. `head` precedes each candidate;
  // it names what it includes from the root of the sources ("tests/..."). Throws std::runtime_error with the compiler's
  // messages.
  KernelLibrary(const std::vector<std::string>& sources, const std::string& flags,
                const std::string& head = "");
  KernelLibrary(const KernelLibrary&) = delete;
  KernelLibrary& operator=(const KernelLibrary&) = delete;

  // Calls candidate `index`. `tensors` are inputs, then outputs, as launch takes them; 1 to 8 of them.
  void Launch(size_t index, const std::vector<void*>& tensors) const;

 private:
  std::vector<void*> handles_, functions_;
};

// Whether g++ accepts `source` with `flags` (for machines other than this one).
bool Compiles(const std::string& source, const std::string& flags);

// A `cuda` candidate as C++ for KernelLibrary with cuda_on_cpu.h as its head: rewrites launches, shared
// arrays and the functions that are inline assembly.
std::string ToCpp(const std::string& cuda_source);

}  // namespace kevin::test
