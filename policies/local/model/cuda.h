#pragma once
// Torch's CUDA half, which this program is not linked to.

#include <c10/core/Device.h>

namespace kevin::local {

// Loads it for the process and makes `device` this thread's. Nothing to do for a CPU. Throws Error(kMachine)
// that says what is missing.
void OpenCuda(c10::Device device);

}  // namespace kevin::local
