#include "env/gpu/judge/time_stages.h"

#include <chrono>

#include "env/process/machine.h"

namespace kevin {
namespace {

constexpr double kStagesBudget_s = 0.3;
// The timer leaves the first call out, and writes after 1, 2, 4, ... further ones.
constexpr int kLeastStageCalls = 3, kMostStageCalls = 33;

// Empty, or why there are no more calls.
std::string MakeStageCalls(GpuPythonSession& session, PythonSide& side, double timeout_s) {
  if (const auto end = side.process().WaitReady(timeout_s)) return end->message;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kMostStageCalls && (i < kLeastStageCalls || SecondsSince(start) < kStagesBudget_s);
       ++i) {
    const std::vector<uint16_t> slots = session.DrawSlots(1);
    session.Draw(slots);
    if (const auto batch = session.Run(side, slots, timeout_s); batch.end) return batch.end->message;
  }
  return "";
}

}  // namespace

DiagnosisRun TimeStages(GpuPythonSession& session, const StagesRequest& request) {
  const DeviceLock lock(session.base().LockName(), LockMode::kExclusive, nullptr);
  DiagnosisRun run;
  const auto examined = session.Examine(request.key, request.bundle_fd, request.examine_timeout_s);
  {
    const auto side = session.Start("candidate", request.marked_fd, examined);
    run.failure = MakeStageCalls(session, *side, request.call_timeout_s);
    run.log = side->process().Log();
  }
  session.workers().Settle();
  return run;
}

}  // namespace kevin
