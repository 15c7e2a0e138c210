#pragma once
// What `kevin train` asks of the devices of a placement: how the model is sampled there, and what the memory plan of
// --device auto is made for.

#include <vector>

#include "agent/train/device_choice.h"
#include "agent/train/placement.h"
#include "agent/train/sampled_training.h"
#include "agent/train/trainer_process.h"
#include "policies/local/train/options.h"
#include "policies/local/train/sampling_options.h"
#include "tools/device_options.h"

namespace kevin {

// For the trainer's server, without its socket.
local::SamplingOptions SamplingOn(const Placement& placement, const OnlineSettings& settings,
                                  const TrainSuites& suites);

// Bytes that this rank's judge takes on a device; 0: it is on another one, or nothing is judged.
int64_t JudgeBytesOn(const std::string& device, const Placement& placement, const OnlineSettings& settings,
                     const TrainSuites& suites, const GpuFinder& find_gpus = FindGpus);

// Online: the longest_tokens that may occur (local::LearntData) by --context and --max-sample-tokens. 0 without both: a model's
// own context may be many times as long as what it writes.
int64_t LongestOnline(const OnlineSettings& settings, const Algorithm& algorithm, int64_t max_sample_tokens);

// The trainers of `places`, for one process, with the memory that `trainer` finds available.
std::vector<PossibleDevice> PossibleDevices(const std::vector<Placement>& places,
                                            const local::TrainOptions& options,
                                            const OnlineSettings& settings, const TrainSuites& suites,
                                            TrainerProcess& trainer);

}  // namespace kevin
