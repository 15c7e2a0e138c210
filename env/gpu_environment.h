#pragma once
// Judges candidates of kinds `cuda` and `ptx` on one NVIDIA GPU (env/environment.h): interprets the launch
// function, compiles and inspects the device code here, and has the evaluator (env/gpu/gpu_evaluator.h)
// verify and time it.

#include <memory>

#include "env/environment.h"
#include "env/gpu/find_gpus.h"

namespace kevin {

// Throws Error(kMachine) when the GPU, its driver, NVRTC or torch's CUDA part is not usable.
std::unique_ptr<Environment> MakeGpuEnvironment(const EnvironmentOptions& options, const GpuFound& gpu);

}  // namespace kevin
