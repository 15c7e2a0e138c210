#include "tools/train_devices.h"

#include <algorithm>

#include "policies/local/files/model_config.h"
#include "tools/train_options.h"

namespace kevin {

local::SamplingOptions SamplingOn(const Placement& placement, const OnlineSettings& settings,
                                  const TrainSuites& suites) {
  local::SamplingOptions sampling;
  sampling.device = placement.sampler;
  sampling.context_tokens = settings.context, sampling.cache_tokens = settings.sampler_tokens;
  sampling.trains_there = placement.trains_there, sampling.samplers_here = placement.samplers_here;
  // Beside the copies of others, the weights in training have a cache, too.
  sampling.samplers = placement.sampler.empty() ? placement.samplers_here + 1 : placement.samplers;
  const std::string& sampler = placement.sampler.empty() ? placement.trainer : placement.sampler;
  if (settings.SamplesItself()) sampling.judge_bytes = JudgeBytesOn(sampler, placement, settings, suites);
  return sampling;
}

int64_t JudgeBytesOn(const std::string& device, const Placement& placement, const OnlineSettings& settings,
                     const TrainSuites& suites, const GpuFinder& find_gpus) {
  OnlineSettings placed = settings;
  placed.judges = placement.judges;
  return settings.Samples() && JudgesOnGpu(placed, device, find_gpus) ? JudgeBytes(settings, suites) : 0;
}

int64_t LongestOnline(const OnlineSettings& settings, const Algorithm& algorithm, int64_t max_sample_tokens) {
  const int64_t sample = settings.context == 0 || max_sample_tokens == 0
                             ? std::max(settings.context, max_sample_tokens)
                             : std::min(settings.context, max_sample_tokens);
  return algorithm.material == Material::kPairs ? 2 * sample : sample;
}

std::vector<PossibleDevice> PossibleDevices(const std::vector<Placement>& places,
                                            const local::TrainOptions& options,
                                            const OnlineSettings& settings, const TrainSuites& suites,
                                            TrainerProcess& trainer) {
  const local::ModelConfig config = local::ReadModelConfig(options.model);
  std::vector<PossibleDevice> possible;
  std::vector<std::string> devices;
  for (const Placement& place : places) {
    PossibleDevice& each = possible.emplace_back();
    devices.push_back(each.device = place.trainer);
    each.request.has_reference = LoadsReference(options);
    each.request.trains_on_cpu = place.trainer == "cpu";
    each.request.judge_bytes = JudgeBytesOn(place.trainer, place, settings, suites);
    each.request.judges_meanwhile = settings.staleness > 0;
    // Memory of another device that has a second copy is the same for all.
    const auto unknown = [](const std::string&) { return int64_t{0}; };
    if (settings.SamplesItself())
      RequestSampling(config, place.trainer, SamplingOn(place, settings, suites), unknown, &each.request);
  }
  devices.emplace_back("cpu");
  const std::vector<int64_t> free = trainer.FreeBytes(devices);
  for (size_t i = 0; i < possible.size(); ++i)
    possible[i].request.device_bytes = free[i], possible[i].request.main_bytes = free.back();
  return possible;
}

}  // namespace kevin
