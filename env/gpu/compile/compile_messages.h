#pragma once
// Messages of the device compiler, rewritten for the author of the text.

#include <cstdint>
#include <string>
#include <vector>

#include "env/gpu/compile/gpu_module.h"

namespace kevin {

// NVRTC reports missing kernels in a file of its own. The result names the kernel that the launch function
// asks for and those that exist; where the text itself has errors, only these remain.
std::string ExplainMissingKernels(const std::string& log, const std::vector<std::string>& asked,
                                  const std::vector<std::string>& there);

// "there is no kernel `relux` in the text; the kernels there are: relu, softmax"
std::string NoSuchKernel(const std::string& asked, const std::vector<std::string>& there);

// For a text that failed without an error in its log: with its report enabled, the assembler does not print
// that a kernel declares too much shared memory. Empty when that is not the reason.
std::string ExplainTooMuchShared(const PtxasReport& report);

// Printable, in whole lines, at most `limit` bytes.
std::string TrimmedLog(const std::string& log, int64_t limit);

}  // namespace kevin
