#pragma once
// Turns made by the model in training: its options, the model as a policy, and collections through the queue,
// rollout and database of `kevin collect`. The turns are ordinary records, and kill -9 loses nothing.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/rollout/rollout.h"
#include "agent/terminal.h"
#include "agent/train/run_folder.h"
#include "agent/train/step_plan.h"
#include "agent/train/trainer_process.h"
#include "agent/train/turn_times.h"
#include "policies/remote/remote_policy.h"
#include "trajectories/store.h"

namespace kevin {

// The options of `kevin train` about making turns: for --online and for evaluations.
struct OnlineSettings {
  bool online = false;
  std::string suite;          // that is learnt from
  int problems_per_step = 0;  // 0: the algorithm's
  int samples = 16, turns = 4;
  int64_t staleness = 0;
  int refills = -1;         // rounds of further problems in place of flat ones; -1: none, not asked for
  bool curriculum = false;  // problems are drawn by their solve rates (step_plan.h)
  // Sampling
  double temperature = 0.9;
  int max_tokens = 0;          // of a reply; 0: as in `kevin collect`
  LengthSchedule schedule;     // of them, by step; empty: max_tokens throughout
  int64_t context = 0;         // of prompt and reply; 0: the model's
  std::string place;           // --place (placement.h)
  std::string sampler_device;  // of a second copy; empty: the weights in training are sampled
  // "openai:MODEL@URL": a server that takes new weights makes the turns; empty: the trainer does
  std::string sampler;
  int64_t sampler_tokens = 0;
  std::string kind;               // of candidates, --kind; empty: the first that the judges take
  std::string prompts = "kevin";  // EpisodeOptions::prompts
  std::string diagnose = "best";  // DiagnoseTurns; never after the last turn of an episode
  // Judging
  std::vector<std::string> judges;  // devices
  std::string size, rules = "kevin", isolation = "full";
  bool unsafe_python = false;
  int threads = 0, parallel = 0;
  // Evaluations
  std::string eval_suite, test_suite, best_by = "mean_avg";
  int64_t eval_every = 0;
  int eval_samples = 4, eval_turns = 4;

  bool SamplesItself() const { return Samples() && sampler.empty(); }
  bool Samples() const { return online || !eval_suite.empty() || !test_suite.empty(); }
};

// The model that a trainer holds, as a policy. Each completion states the steps that the model had learnt
// (VersionedModel) and the hash of its weights.
class TrainedPolicy : public Policy {
 public:
  // `name`: as stored with episodes. `device`: where the model is sampled, "cpu" or "cuda:N"; `locks`: of further devices,
  // where the ranks sample together. `trainer` must outlive this.
  TrainedPolicy(std::string name, TrainerProcess& trainer, const TrainerProcess::Opened& opened,
                const OnlineSettings& settings, std::string device, std::vector<std::string> locks = {});

  Completion Complete(const Request& request, const CancelToken* cancel, const OnText& on_text) override;
  std::string Name() const override { return name_; }
  std::string ComputesOn() const override { return device_; }
  std::vector<std::string> FurtherLocks() const override { return locks_; }
  bool AnswersTogether() const override { return true; }

  const PolicySettings& settings() const { return settings_; }

 private:
  void RequireTrainer() const;  // throws PolicyUnavailable where it has ended

  const std::string name_, model_, device_;
  const std::vector<std::string> locks_;
  TrainerProcess& trainer_;
  std::unique_ptr<RemotePolicy> client_;
  PolicySettings settings_;
};

struct RolloutTerms {
  std::string name;  // of the collection in the run's file: "step-12"
  std::string what;  // for the user: "step 12/40"
  std::vector<std::string> problems;
  int episodes = 1, turns = 4;
  uint64_t seed = 0;
  bool confirm = false;  // winners are measured again; not needed for turns to learn from
};

class Rollouts {
 public:
  // `judges`: one environment over all judges of this one. `failure`: of what the turns depend
  // on; any thread. The other references must outlive this. Throws Error(kBadRequest) for a database or an output folder
  // that is not writable.
  Rollouts(const OnlineSettings& settings, const std::string& database, std::filesystem::path kernels,
           RunFile& run, Progress& progress, std::unique_ptr<Environment> judges,
           std::function<std::optional<Error>()> failure);

  const EnvironmentFacts& facts() const { return environment_->Facts(); }
  // The models of device (DeviceModel) on which other ranks judge, before the first collection.
  void SetDevicesOfOthers(std::vector<std::string> models) { devices_of_others_ = std::move(models); }
  void ReleaseJudges() { environment_->ReleaseMemory(); }
  // Of the candidates that the model writes.
  const std::string& kind() const { return settings_.kind.empty() ? facts().kinds.front() : settings_.kind; }
  Store& store() { return store_; }

  // Runs until every episode is stored, by this process or by others; continues an earlier, unfinished
  // collection of the same name. Returns the run that holds the episodes, nullopt when `drain` interrupted
  // it. Several calls may run at once. Adds the times of this process's turns to *times. Throws the `failure` soon after it
  // is there, also while other ranks are waited for, and Error(kMachine) where no rank judges on the model of device on which
  // the episodes that are left were begun.
  std::optional<std::string> Collect(const RolloutTerms& terms, Policy& policy,
                                     const PolicySettings& settings, const CancelToken* drain,
                                     const CancelToken* stop, TurnTimes* times);
  // Whether nothing is to be waited for any more. Throws the `failure`.
  bool IsOver(const CancelToken* drain) const;

 private:
  struct Entered {
    std::string collection, worker_run;
  };
  // nullopt: interrupted.
  std::optional<Entered> Enter(const RolloutTerms& terms, const std::string& policy,
                               std::map<std::string, Problem>* problems, const CancelToken* drain);
  std::optional<std::string> CollectWatched(const RolloutTerms& terms, Policy& policy,
                                            const PolicySettings& settings, const CancelToken* drain,
                                            const CancelToken* stop, TurnTimes* times);
  Workload Asked() const;
  std::string JudgesText() const;
  RolloutHooks Hooks(const RolloutTerms& terms);

  const OnlineSettings& settings_;
  const std::filesystem::path kernels_;
  RunFile& run_;
  Progress& progress_;
  Store store_;
  std::vector<std::string> devices_of_others_;
  const std::unique_ptr<Environment> environment_;
  const std::function<std::optional<Error>()> failure_;
};

}  // namespace kevin
