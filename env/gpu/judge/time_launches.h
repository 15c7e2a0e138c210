#pragma once
// The time of each launch of a candidate, for a diagnosis (env/diagnosis/diagnosis.h). Enters no verdict.

#include <vector>

#include "env/diagnosis/diagnosis.h"
#include "env/gpu/judge/gpu_session.h"
#include "env/gpu/runner/launch_plan.h"

namespace kevin {

// Shortest times over a few calls, in the order of the launches; each call like one of a verdict, with an event after
// each launch. `index` counts launches, without sets and copies of memory. Empty where the candidate fails. Ends within
// 0.3 s of the device where a call takes less. Holds the lock of the GPU.
std::vector<LaunchTime> TimeLaunches(GpuSession& session, const LaunchPlan& plan);

}  // namespace kevin
