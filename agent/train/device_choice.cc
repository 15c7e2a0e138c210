#include "agent/train/device_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "env/error.h"

namespace kevin {

ChosenDevice ChooseDevice(const local::ModelConfig& config, const local::TrainOptions& options,
                          const std::vector<PossibleDevice>& possible) {
  std::vector<local::TrainPlan> plans;
  std::vector<std::string> misfits;
  for (const PossibleDevice& each : possible) {
    const local::TrainPlan& plan = plans.emplace_back(local::PlanTraining(config, options, each.request));
    if (plan.fits_here) {
      if (misfits.empty()) return {};
      return {
          plans.size() - 1,
          fmt::format(
              "--device auto: trains on {}, because by the memory plan the run does not fit {}; --device {} "
              "has it tried there",
              each.device, fmt::join(misfits, ", nor "), possible.front().device)};
    }
    misfits.push_back(fmt::format("{} ({})", each.device, plan.misfit));
  }
  for (size_t i = 0; i < plans.size(); ++i) {
    if (plans[i].may_be_tried) return {i, ""};
  }
  throw Error(ExitCode::kMachine,
              fmt::format("by the memory plan the run does not fit {}", fmt::join(misfits, ", nor ")),
              plans.front().next);
}

}  // namespace kevin
