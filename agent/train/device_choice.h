#pragma once
// --device auto of a run in one process: the GPU where the memory plan fits it, with activations kept or recomputed, else the
// CPU where it fits main memory, else an error that says what does not fit and what to change. A plain function of the plans.

#include <string>
#include <vector>

#include "policies/local/files/model_config.h"
#include "policies/local/train/options.h"
#include "policies/local/train/train_plan.h"

namespace kevin {

struct PossibleDevice {
  std::string device;               // "cuda:0", "cpu"
  local::TrainPlanRequest request;  // with the memory available there
};

struct ChosenDevice {
  size_t index = 0;  // of the possible ones
  std::string
      line;  // for the user, where it is not the first one: which number did not fit there; else empty
};

// `possible`: at least one, the preferred one first. A plan is an estimate: where none fits, the first device that it misses
// by little is tried, as when it is asked for. Throws Error(kMachine) where there is no such device.
ChosenDevice ChooseDevice(const local::ModelConfig& config, const local::TrainOptions& options,
                          const std::vector<PossibleDevice>& possible);

}  // namespace kevin
