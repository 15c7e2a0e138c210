#include "env/cpu/eager_baseline.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "env/cpu/peak.h"
#include "env/cpu/timed_process.h"
#include "env/error.h"
#include "env/process/machine.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostBatches = 40, kFewestBatches = 5;
constexpr double kBudget_s = 3, kEagerTimeout_s = 600;

double BatchUs(Session& session, int calls) {
  const std::vector<uint16_t> slots = session.DrawSlots(calls);
  session.FillInputs(slots);
  PauseBeforeTurn();
  FlushCaches(session.options().threads);
  double total_us = 0;
  if (session.twin().RunBatch(slots, kEagerTimeout_s, &total_us))
    throw Error(ExitCode::kBroken, "the reference process ended: " + session.twin().Log(), "try again");
  return total_us / calls;
}

}  // namespace

nlohmann::json MeasureEager(Session& session) {
  const DeviceLock lock("cpu", LockMode::kExclusive, nullptr);
  const int calls =
      std::clamp(static_cast<int>(std::ceil(kMinBatch_us / session.reference_us())), 1, session.slots());
  const auto start = Clock::now();
  std::vector<double> batches;
  while (batches.size() < kMostBatches) {
    const bool is_late = std::chrono::duration<double>(Clock::now() - start).count() > kBudget_s;
    if (is_late && batches.size() >= kFewestBatches) break;
    batches.push_back(BatchUs(session, calls));
  }
  std::sort(batches.begin(), batches.end());
  const size_t count = batches.size();
  return {{"eager_us", batches[count / 2]},
          {"low_us", batches[count / 4]},
          {"high_us", batches[count * 3 / 4]},
          {"batches", count},
          {"calls", calls},
          {"torch", TorchVersion()}};
}

}  // namespace kevin
