#pragma once
// What a person asks of `kevin train`: all of its options, and what the parts of a run take from them.

#include <cstdint>
#include <string>
#include <vector>

#include "agent/train/batches.h"
#include "agent/train/sampled_training.h"
#include "tools/train_settings.h"

namespace kevin {

struct TrainRequest {
  std::vector<std::string> databases = {"kevin.db"}, runs;
  std::string model, output, problems, without, held_out;
  TrainSettings settings;
  OnlineSettings sampling;
  UnitOptions units;
  BatchOptions batches;
  int64_t steps = 0;
  double epochs = 0;
  uint64_t seed = 0;
  bool resume = false, recompute = false, optimizer_on_cpu = false, keep_cut_off = false, json = false;
  bool from_base = false;
};

// `request` must live as long as `command`.
void AddTrainRequest(CLI::App* command, TrainRequest* request);

// Those that follow throw Error(kBadRequest) where what was asked for cannot be.

// Also fills in how many problems a step has where nobody said.
Algorithm AlgorithmOf(TrainRequest* request);
local::TrainOptions OptionsFrom(const TrainRequest& request, const Algorithm& algorithm);
// Offline: which records.
LearnRequest RecordsFrom(const TrainRequest& request, const TrainSuites& suites, const Scheme& scheme);
// That --out holds no other run.
void CheckOutput(const TrainRequest& request);

}  // namespace kevin
