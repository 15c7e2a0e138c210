#pragma once
// Turns made for a training run: through the same queue, rollout and database as `kevin collect`, so that
// they are records like any others and nothing is lost at kill -9.

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/progress.h"
#include "agent/rollout/rollout.h"
#include "agent/train/online_settings.h"
#include "agent/train/run_file.h"
#include "trajectories/store.h"

namespace kevin {

struct RolloutTerms {
  std::string name;  // by which the run's file knows the collection: "step-12"
  std::string what;  // for people: "step 12/40"
  std::vector<std::string> problems;
  int episodes = 1, turns = 4;
  uint64_t seed = 0;
  bool confirm = false;  // winners are measured again, which what turns are learnt from does not need
};

class Rollouts {
 public:
  // `judges`: one environment over all judges. All else that is given must outlive this. Throws Error(kBadRequest) for a database
  // or an output folder that cannot be written.
  Rollouts(const OnlineSettings& settings, const std::string& database, std::filesystem::path kernels,
           RunFile& run, Progress& progress, std::unique_ptr<Environment> judges);

  const EnvironmentFacts& facts() const { return environment_->Facts(); }
  Store& store() { return store_; }

  // Until every episode is there, made by this process or by others; goes on with what an earlier one left.
  // Returns the run that holds them, nullopt when `drain` broke it off. Several at once may be under way.
  std::optional<std::string> Collect(const RolloutTerms& terms, Policy& policy,
                                     const PolicySettings& settings, const CancelToken* drain,
                                     const CancelToken* stop);

 private:
  struct Entered {
    std::string collection, worker_run;
  };
  Entered Enter(const RolloutTerms& terms, const std::string& policy,
                std::map<std::string, Problem>* problems);
  RolloutHooks Hooks(const RolloutTerms& terms);

  const OnlineSettings& settings_;
  const std::filesystem::path kernels_;
  RunFile& run_;
  Progress& progress_;
  Store store_;
  const std::unique_ptr<Environment> environment_;
};

}  // namespace kevin
