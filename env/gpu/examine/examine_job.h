#pragma once
// What kevin-gpu-examiner is asked to run, as JSON text in its work folder.

#include <cstdint>
#include <string>
#include <vector>

#include "env/gpu/runner/drawing.h"

namespace kevin {

inline constexpr const char* kExamineJobFile = "job.json";
inline constexpr const char* kExamineFaultFile = "fault";  // there when a call failed: the driver's words

struct ExaminedFill {
  int64_t offset_bytes = 0, elements = 0;
  Drawing drawing;
  std::string stored{};  // the bytes instead of drawn ones; may be empty
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
  // Outputs and workspaces as they come, so that a check for reads of memory that nobody wrote can see them.
  bool untouched_memory = false;
};

std::string ExamineJobToText(const ExamineJob& job);
// Throws Error(kBroken) when the text is no job.
ExamineJob ExamineJobFromText(const std::string& text);

}  // namespace kevin
