#pragma once
// The options of `kevin optimize`, and the import that they ask for.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/device_options.h"
#include "tools/importer.h"
#include "tools/policies.h"
#include "tools/privacy.h"

namespace kevin {

struct OptimizeOptions {
  std::string target, example_inputs, policy = "search", output, database = "kevin.db", folder = "kevin-out";
  std::vector<std::string> init, dynamic;
  DeviceOptions device;
  PolicyOptions model;
  PrivacyOptions privacy;
  ImportSandbox sandbox;
  std::optional<int> tune;
  int turns = 8;
  uint64_t seed = 0;
  double limit_s = 600;
  bool plan_only = false, json = false, force = false, no_compile = false;
};

void AddOptimizeOptions(CLI::App* command, OptimizeOptions* options);

// The user's module, and where its problem is kept.
struct OptimizeImport {
  ImportJob job;
  ImportTarget target;
};

// Throws Error(kBadRequest) for a file that is none, a place for the result that is taken or missing, a wrong --init or
// --dynamic; nothing is started.
OptimizeImport ImportOf(const OptimizeOptions& options);

}  // namespace kevin
