#pragma once
// The job of kevin-gpu-examiner, as JSON text in its work folder.

#include <cstdint>
#include <string>
#include <vector>

#include "env/gpu/runner/device_memory.h"

namespace kevin {

inline constexpr const char* kExamineJobFile = "job.json";
inline constexpr const char* kExamineFaultFile =
    "fault";  // exists when a call failed: the message of the driver

struct ExaminedFill {
  int64_t offset_bytes = 0, elements = 0;
  Drawing drawing;
  std::string stored{};  // bytes to use instead of drawn values; may be empty
};

// One argument of `launch`: a tensor, or the block of all parameters.
struct ExaminedArgument {
  int64_t bytes = 0;
  std::vector<ExaminedFill> fills;  // none: an output
};

struct ExamineJob {
  std::string plan;           // LaunchPlanToText
  std::string trusted_cubin;  // Kevin's own kernels
  std::vector<ExaminedArgument> arguments;
  // Leave outputs and workspaces uninitialised, for a check for reads of uninitialised memory.
  bool untouched_memory = false;
};

std::string ExamineJobToText(const ExamineJob& job);
// Throws Error(kBroken) when the text is not a job.
ExamineJob ExamineJobFromText(const std::string& text);

}  // namespace kevin
