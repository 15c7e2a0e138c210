#pragma once
// The trusted side's own device code: drawing inputs, poison, comparison, scrubbing and probes. CUDA C++
// text, compiled like a candidate (for the device's exact architecture) and loaded by evaluator and runner.
// Kernels that read or write tensors exist for each floating type: kevin_fill, kevin_fill_f16, ...

#include <string>
#include <vector>

namespace kevin {

const std::string& TrustedKernelText();
const std::vector<std::string>& TrustedKernelNames();

}  // namespace kevin
