#pragma once
// The options of `kevin train` that reach the trainer or change an algorithm.

#include <memory>
#include <string>
#include <vector>

#include "agent/train/algorithm.h"
#include "tools/scheme_options.h"

namespace CLI {
class App;
}

namespace kevin {

// One option of the command line for one member of local::TrainOptions.
struct TrainSetting {
  const char *flag, *member, *help, *group;
  std::string value;  // empty: the algorithm's own
};

struct TrainSettings {
  std::string algorithm = "grpo";
  SchemeOptions scheme;
  std::string select;  // sft: all, correct, best
  int batch = 0;       // units of a step; 0: the algorithm's
  std::vector<TrainSetting> settings;

  bool Has(const std::string& flag) const;  // it was given
};

// `settings` must live as long as `command`.
void AddTrainSettings(CLI::App* command, TrainSettings* settings);

// The algorithm with everything that was given in place of its own. Throws Error(kBadRequest) for unknown
// names and values that make no sense.
Algorithm AlgorithmFrom(const TrainSettings& settings);

}  // namespace kevin
