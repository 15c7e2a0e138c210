#pragma once
// How an input's values are drawn on the device: as env/process/generator.h draws them, by trusted kernels.

#include <cstdint>

#include "env/gpu/runner/driver.h"
#include "env/problem/problem.h"
#include "env/process/generator.h"

namespace kevin {

struct Drawing {
  int distribution = 0;  // the trusted kernels' enumerators
  float scale = 1, offset = 0;
  int element_bytes = 4;
  bool whole = false;  // whole numbers, in elements of that many bytes
  int structure = 0;   // TensorSpec::structure; 0: none
  long long rows = 1;
  bool brain = false;  // of two bytes: bf16, not fp16
};

// `member` of the input mixture (0 to kMixtureMembers - 1), for inputs that are drawn from it.
Drawing DrawingOf(const ConcreteTensor& tensor, InputMode mode, uint64_t member);

// Of the module with Kevin's own kernels. Throws DriverError.
struct FillKernels {
  CuHandle fill = nullptr, fill_f16 = nullptr, fill_bf16 = nullptr, whole = nullptr, impose = nullptr,
           impose_16 = nullptr;
};
FillKernels FillKernelsOf(CuHandle module);

// Enqueues the filling of `elements` values. Throws DriverError.
void FillOnDevice(const FillKernels& kernels, CuHandle stream, CuDevicePtr data, int64_t elements,
                  const Drawing& drawing, uint64_t seed);

}  // namespace kevin
