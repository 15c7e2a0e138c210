#include "env/device_pool.h"

#include <fmt/format.h>

#include <algorithm>

#include "env/error.h"
#include "env/problem/problem.h"

namespace kevin {

DevicePool::DevicePool(std::vector<std::unique_ptr<Environment>> devices)
    : devices_(std::move(devices)), facts_(devices_.front()->Facts()), busy_(devices_.size()) {
  std::string names;
  for (const auto& device : devices_) {
    const EnvironmentFacts& other = device->Facts();
    if (DeviceModel(other.device) != DeviceModel(facts_.device) || other.kinds != facts_.kinds) {
      throw Error(ExitCode::kBadRequest,
                  fmt::format("{} and {} are different devices", facts_.device, other.device),
                  "start a process for each (kevin collect --join RUN --device ...)");
    }
    names += (names.empty() ? "" : ", ") + other.device.substr(0, other.device.find(": "));
  }
  facts_.device = names + ": " + DeviceModel(facts_.device);
}

Evaluation DevicePool::EvaluateShape(const Problem& problem, const Candidate& candidate,
                                     const EvaluateOptions& options) {
  size_t chosen = 0;
  {
    const std::lock_guard lock(mutex_);
    chosen = static_cast<size_t>(std::min_element(busy_.begin(), busy_.end()) - busy_.begin());
    ++busy_[chosen];
  }
  const auto leave = [&] {
    const std::lock_guard lock(mutex_);
    --busy_[chosen];
  };
  try {
    Evaluation evaluation = devices_[chosen]->Evaluate(problem, candidate, options);
    leave();
    return evaluation;
  } catch (...) {
    leave();
    throw;
  }
}

std::string DevicePool::EvaluationKey(const Problem& problem, const Candidate& candidate,
                                      const EvaluateOptions& options) {
  return devices_.front()->EvaluationKey(problem, candidate, options);
}

std::string DevicePool::MachineKey(const Problem& problem, const Candidate& candidate,
                                   const EvaluateOptions& options) {
  return devices_.front()->MachineKey(problem, candidate, options);
}

}  // namespace kevin
