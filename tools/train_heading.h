#pragma once
// What `kevin train` says before its first step, and the peak that its steps are compared with. Pure, but for PeakOf, which
// reads the model's configuration and looks for GPUs.

#include <optional>
#include <string>
#include <vector>

#include "agent/train/placement.h"
#include "agent/train/sampled_training.h"
#include "agent/train/trainer_process.h"
#include "policies/local/train/options.h"
#include "tools/train_options.h"

namespace kevin {

// With --online: "8 problems, 4 a step, 16 episodes of 4 turns each, judged on cpu, kept in kevin.db".
std::string OnlineText(const TrainRequest& command, const TrainSuites& suites, const std::string& judge);

// How much is trained where, who is where, and from which weights is sampled. `device`: that trains.
std::vector<std::string> ModelLines(const TrainRequest& command, const std::string& device,
                                    const TrainerProcess::Opened& opened, const Placement& placement);

// Of the GPU that trains, in FLOP/s of the model's type; nullopt: another device or type, or a GPU that is not known.
std::optional<double> PeakOf(const TrainRequest& command, const local::TrainOptions& options);

}  // namespace kevin
