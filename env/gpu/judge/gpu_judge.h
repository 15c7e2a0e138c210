#pragma once
// The verdict on one compiled GPU candidate, by the rules of README.md, "What a verdict means": right on
// fresh seeds first, then timed against eager in pairs of single calls. Every call, also in verification, is
// made and looks the same: new inputs and weights, poisoned outputs and workspaces, scrubbed shared memory,
// flushed L2.

#include <functional>

#include "env/gpu/judge/gpu_session.h"
#include "env/verdict/judge_result.h"

namespace kevin {

struct GpuJudgeRequest {
  LaunchPlan plan;
  std::optional<LaunchPlan> start_plan;  // the kernel to pair against as well
  bool confirm = false;  // a winner measured again: a new runner, no sequential test, more pairs
  double patience = 1;   // as in EvaluateOptions
  bool verify_only = false;
  double call_timeout_s = 20;
  std::function<void(const std::string& phase)> on_phase;
};

// Throws Error for what is not the candidate's doing; the evaluation is then void. kMachine: the GPU itself
// no longer works.
JudgeResult JudgeOnGpu(GpuSession& session, const GpuJudgeRequest& request);

}  // namespace kevin
