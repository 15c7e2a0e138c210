#include "env/gpu/judge/time_launches.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "env/process/machine.h"

namespace kevin {
namespace {

constexpr double kBudget_s = 0.2, kTimeout_s = 5;
constexpr int kMostCalls = 5, kMostCallsIfLong = 2;
constexpr double kLongCall_us = 1000;
constexpr size_t kMostOperations = 1000;

std::vector<LaunchTime> LaunchesOf(const LaunchPlan& plan, const std::vector<double>& operations_us) {
  std::vector<LaunchTime> launches;
  for (size_t i = 0; i < plan.operations.size(); ++i) {
    if (!std::holds_alternative<PlannedLaunch>(plan.operations[i])) continue;
    launches.push_back({static_cast<int>(launches.size()), operations_us[i]});
  }
  return launches;
}

}  // namespace

std::vector<LaunchTime> TimeLaunches(GpuSession& session, const LaunchPlan& plan) {
  if (plan.operations.empty() || plan.operations.size() > kMostOperations) return {};
  const DeviceLock lock(session.LockName(), LockMode::kExclusive, nullptr);
  GpuSession::Calibrated runner = session.TakeRunner(false);
  const auto start = std::chrono::steady_clock::now();
  std::vector<double> best_us;
  if (!runner.client->Load(plan, kTimeout_s)) {
    const int most = session.reference_us() > kLongCall_us ? kMostCallsIfLong : kMostCalls;
    for (int call = 0; call < most && (call == 0 || SecondsSince(start) < kBudget_s); ++call) {
      session.Draw(0);
      session.PoisonOutputs(0);
      session.Synchronize();
      std::vector<double> times_us;
      if (runner.client->TimeOperations(0, session.random()(), kTimeout_s, &times_us) ||
          times_us.size() != plan.operations.size()) {
        best_us.clear();
        break;
      }
      if (best_us.empty()) best_us = times_us;
      for (size_t i = 0; i < times_us.size(); ++i) best_us[i] = std::min(best_us[i], times_us[i]);
    }
  }
  session.GiveBack(std::move(runner));
  return best_us.empty() ? std::vector<LaunchTime>() : LaunchesOf(plan, best_us);
}

}  // namespace kevin
