#pragma once
// The options of `kevin collect` and `kevin eval`.

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "agent/rollout/collection.h"
#include "agent/rollout/rollout.h"
#include "tools/collection.h"
#include "tools/device_options.h"
#include "tools/policies.h"
#include "tools/privacy.h"

namespace kevin {

struct CollectOptions {
  std::string command, suite, database = "kevin.db", output = "kevin-out", join;
  std::vector<std::string> policies = {"search"}, devices;
  DeviceOptions device;
  PolicyOptions model;
  PrivacyOptions privacy;
  CollectBudget budget;
  CollectionSpec spec;
  RolloutOptions rollout;
  std::optional<int> tune;
  std::string diagnose = "best";
  int parallel = 0;
  bool new_run = false, json = false;
  bool report = false;  // end with the report of the run
};

// Those of options->command, with its examples; their defaults are the values of `options`, which must live as long as
// `command`.
void AddCollectOptions(CLI::App* command, CollectOptions* options);

}  // namespace kevin
