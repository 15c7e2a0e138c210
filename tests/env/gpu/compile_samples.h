#pragma once
// A kernel and messages for the tests of the device compiler.

#include <string>

#include "tests/env/gpu/gpu_fixture.h"

namespace kevin {

inline const char* const kRelu = R"(__global__ void relu(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] > 0 ? x[i] : 0;
}
)";

inline bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace kevin
