#pragma once
// How the model of a training run is sampled by the trainer's own server, as plain values with their JSON form, and what
// that asks of the memory plan. No torch.

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "policies/local/files/model_config.h"
#include "policies/local/train/train_plan.h"

namespace kevin::local {

struct SamplingOptions {
  std::string socket;          // Unix socket of the server; readable by its owner only
  std::string device;          // of a second set of weights; empty: the trainer's own weights are used
  int64_t context_tokens = 0;  // limit of prompt and answer; 0: the model's, or what the cache holds
  // Of keys and values; 0: on a CPU kContextsOnCpu, on a GPU 60 % of the free memory, and less where judge or trainer need
  // more than the rest.
  int64_t cache_tokens = 0;
  int64_t judge_bytes =
      0;  // that judging takes on the device where the model is sampled; 0: it is not judged there
  int samplers =
      1;  // ranks that have a second set of weights on this device; each takes its part of the memory
  bool trains_there = false;  // a rank trains on the device of the second set
  int samplers_here = 0;      // second sets, of any rank, on the device that trains
};

nlohmann::json ToJson(const SamplingOptions& options);
SamplingOptions SamplingOptionsFromJson(const nlohmann::json& json);

// Why a model cannot be sampled by so many ranks together; empty: it can.
struct CannotSplit {
  std::string reason, next;
};
CannotSplit WhyNotSplit(const ModelConfig& config, const std::string& quantization, int ranks);

// Adds what sampling needs to the request for a memory plan of `trainer`, a device, and what judging needs on another device
// that has the second set. `free_bytes`: available there.
void RequestSampling(const ModelConfig& config, const std::string& trainer, const SamplingOptions& sampling,
                     const std::function<int64_t(const std::string& device)>& free_bytes,
                     TrainPlanRequest* request);

}  // namespace kevin::local
