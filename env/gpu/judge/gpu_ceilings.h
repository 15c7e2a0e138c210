#pragma once
// What programs reach on a GPU (env/ceilings.h): memory bandwidth with cold caches, float32 multiply-adds, and the
// tensor cores in TF32, fp16 and bf16, as the products of matrices of torch reach them (cuBLAS). The best of several
// windows counts; caches are flushed before each.

#include <string>

#include "env/ceilings.h"

namespace kevin {

// Raised with every change after which a value may differ.
inline constexpr int kGpuCeilingsVersion = 1;

// `trusted_cubin`: the bytes of Kevin's own kernels. Needs a current context and LoadTorchCuda, about 2 s and 3 GB of
// the device's memory; what does not fit stays unknown. The caller holds the lock of the device. Throws DriverError.
Ceilings MeasureGpuCeilings(int device, const std::string& trusted_cubin);

}  // namespace kevin
