#include "tools/train_heading.h"

#include <fmt/format.h>

#include "agent/train/step_log.h"
#include "env/gpu/find_gpus.h"
#include "policies/local/files/model_config.h"

namespace kevin {

std::string OnlineText(const TrainRequest& command, const TrainSuites& suites, const std::string& judge) {
  const OnlineSettings& o = command.sampling;
  return fmt::format("{} problems, {} a step, {} episodes of {} turns each, judged on {}, kept in {}",
                     suites.learnt.size(), o.problems_per_step, o.samples, o.turns, judge,
                     command.databases.front());
}

std::vector<std::string> ModelLines(const TrainRequest& command, const std::string& device,
                                    const TrainerProcess::Opened& opened, const Placement& placement) {
  const OnlineSettings& o = command.sampling;
  std::vector<std::string> lines = {
      fmt::format("{}: {:.3g} million numbers trained on {}{}{}", command.model,
                  static_cast<double>(opened.trained) / 1e6, device,
                  opened.ranks > 1 ? fmt::format(" by {} ranks", opened.ranks) : "",
                  opened.steps > 0 ? fmt::format(", from step {} on", opened.steps + 1) : "")};
  if (o.Samples() && opened.ranks == 1) lines.push_back(PlacementText(placement, true, o.sampler));
  if (!o.SamplesItself()) return lines;
  lines.push_back(opened.split
                      ? fmt::format("sampled by {} ranks together: each has 1/{} of the heads and of the "
                                    "cache, and answers come from rank 0",
                                    opened.ranks, opened.ranks)
                  : o.sampler_device.empty()
                      ? "sampled from the same weights: nothing is copied after a step"
                      : fmt::format("sampled from a second copy on {}, brought up to date after each step",
                                    o.sampler_device));
  return lines;
}

std::optional<double> PeakOf(const TrainRequest& command, const local::TrainOptions& options) {
  const std::string type =
      options.dtype.empty() ? local::NameOf(local::ReadModelConfig(command.model).dtype) : options.dtype;
  const std::vector<GpuFound> gpus = FindGpus();
  if (!options.device.starts_with("cuda") || type == "F32" || type == "float32" || gpus.empty())
    return std::nullopt;
  return PeakFlops(gpus.front().name);
}

}  // namespace kevin
