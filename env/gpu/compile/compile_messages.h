#pragma once
// A device compiler's complaints in words that help the author of the text.

#include <cstdint>
#include <string>
#include <vector>

#include "env/gpu/compile/ptxas_report.h"

namespace kevin {

// NVRTC complains about kernels that it was asked for in a file of its own making. Says instead which kernel
// of the launch function is missing and which there are; where the text itself has errors, only those stay.
std::string ExplainMissingKernels(const std::string& log, const std::vector<std::string>& asked,
                                  const std::vector<std::string>& there);

// "there is no kernel `relux` in the text; the kernels there are: relu, softmax"
std::string NoSuchKernel(const std::string& asked, const std::vector<std::string>& there);

// For a text that failed without an error in its log: asked for its report, the assembler keeps to itself
// that a kernel declares too much shared memory. Empty when that is not it.
std::string ExplainTooMuchShared(const PtxasReport& report);

// Printable, and at most `limit` bytes of it, whole lines.
std::string TrimmedLog(const std::string& log, int64_t limit);

}  // namespace kevin
