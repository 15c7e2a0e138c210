#pragma once
// Rewrites a `cuda` candidate as C++ behind cuda_on_cpu.h: launches, shared arrays, and the functions that
// are inline assembly.

#include <string>

namespace kevin::test {

// With `extern "C" void launch(...)`, as KernelLibrary wants it.
std::string ToCpp(const std::string& cuda_source);

}  // namespace kevin::test
