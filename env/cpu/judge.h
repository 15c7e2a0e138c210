#pragma once
// The verdict on one compiled candidate: verify on fresh seeds, then time it against eager in pairs, by the
// rules of README.md, "What a verdict means". The order of events is in JudgeLibrary(); everything it decides
// with is in env/verdict/verify.h and env/verdict/estimate.h.

#include <functional>
#include <string>
#include <vector>

#include "env/cpu/session.h"
#include "env/verdict/judge_result.h"

namespace kevin {

struct JudgeRequest {
  int library_fd = -1;        // the candidate's .so
  int start_library_fd = -1;  // the kernel to pair against as well (--from, or bench A B); -1: none
  bool confirm = false;       // a winner measured again: no sequential test, more pairs
  double patience = 1;        // as in EvaluateOptions
  bool verify_only = false;   // right or wrong, no clock: a Measured with errors alone when it is right
  std::function<void(const std::string& phase)> on_phase;
};

// Throws Error for what is not the candidate's doing; the evaluation is then void.
JudgeResult JudgeLibrary(Session& session, const JudgeRequest& request);

}  // namespace kevin
