#pragma once
// A training run that makes turns with its own model: collections for steps (--online) and evaluations. Needs
// a policy over the trainer, judges, a database, and the run's file.

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "agent/events.h"
#include "agent/train/batches.h"
#include "agent/train/rollouts.h"
#include "agent/train/run_folder.h"
#include "agent/train/served_sampler.h"
#include "agent/train/trainer_process.h"

namespace kevin {

// --- Suites ---

// The problems of a run, each list by id.
struct TrainSuites {
  std::vector<std::string> learnt, dev, test;

  // `without`: a suite that is not learnt from. Throws Error(kBadRequest) where a problem is in two of the
  // lists.
  TrainSuites(const OnlineSettings& settings, const std::string& without);
};

// The ids of a suite; none for "".
std::vector<std::string> IdsOfSuite(const std::string& suite);

// --- Evaluations: the model in training on problems that it does not learn from ---

struct EvaluationTerms {
  int64_t step = 0;  // that the model had learnt
  std::string suite;
  std::string split;  // "dev" or "test"
  int episodes = 4, turns = 4;
  std::string best_by;  // a metric of kevin report
};

// The event `evaluation_step`: step, suite, split, run, problems, episodes, turns; the metrics of kevin
// report over all problems by name, each {value, low, high}; `serial` and `parallel`, which spend the same
// budget of min(episodes, turns) kernels a problem on one episode or on first turns alone; `budgets`, all
// splits of all budgets; `best_by` and its `value`. Throws Error(kBadRequest) for an unknown metric.
Json EvaluationEvent(Store& store, const std::string& run, const EvaluationTerms& terms);

// "evaluation  step 10  core: solved 3/8, mean speed-up 0.42x; ..."
std::string EvaluationLine(const Json& event);

// Throws Error(kBadRequest) unless `name` is a metric of `kevin report` of which more is better.
void RequireMetric(const std::string& name);

// --- The run ---

struct SampledRequest {
  std::string output, database, algorithm;
  int64_t steps = 0;
  uint64_t seed = 0;
  std::string device;                   // of the trainer
  Scheme scheme;                        // tells which tasks are flat
  std::string model;                    // its folder
  int64_t context = 0;                  // of the model, in tokens
  std::vector<std::string> locks = {};  // of all ranks' devices, where the ranks sample together
};

class SampledTraining {
 public:
  // `judges`: one environment over all judges. The other references must outlive this.
  SampledTraining(const SampledRequest& request, const OnlineSettings& settings, const TrainSuites& suites,
                  TrainerProcess& trainer, const TrainerProcess::Opened& opened, Progress& progress,
                  std::unique_ptr<Environment> judges);

  // The problems of a step's turns. Every problem occurs once, in an order of its own, before any occurs
  // again; or they are drawn by their solve rates. nullopt: interrupted while rank 0 was waited for.
  std::optional<std::vector<std::string>> ProblemsOfStep(int64_t step, const CancelToken* drain);
  // The runs that hold the step's turns. Tasks whose turns do not differ, or whose episodes are all parked, are
  // replaced by tasks of other problems, in as many further collections ("step-12-refill-1") as the settings allow.
  std::optional<std::vector<std::string>> CollectStep(int64_t step, const CancelToken* drain,
                                                      const CancelToken* stop);
  // Of the turns that this process made for a step, once. Any thread.
  TurnTimes TakeTimes(int64_t step);

  // The current model on the dev suite. nullopt: interrupted.
  std::optional<Json> EvaluateDev(int64_t step, const CancelToken* drain, const CancelToken* stop);
  // Whether the evaluation is the best so far.
  bool IsBest(const Json& event) const;
  // Records it in the run's file as the best. `folder`: its checkpoint.
  void SetBest(const Json& event, const std::string& folder);
  std::optional<std::string> BestCheckpoint() const;
  int64_t BestStep() const;

  // The trainer's current weights, of `step`, on the test suite, once a run. Throws Error(kBadRequest) where
  // the suite was read before. An interrupted reading is continued.
  std::optional<Json> EvaluateTest(int64_t step, const CancelToken* drain, const CancelToken* stop);
  void RequireUntested() const;  // the same check, in advance

  // With --sampler: its server answers from what `write` writes, which had learnt `steps`, afterwards. Returns what was
  // called.
  std::string Serve(const ModelWriter& write, int64_t steps) { return served_->Load(write, steps); }
  void FollowServed(int64_t steps) { served_->Follow(steps); }  // another rank has called Serve

  const std::string& database() const { return request_.database; }
  const EnvironmentFacts& facts() const { return rollouts_.facts(); }
  // As Rollouts::SetDevicesOfOthers.
  void SetDevicesOfOthers(std::vector<std::string> models) {
    rollouts_.SetDevicesOfOthers(std::move(models));
  }
  // Before a step on a GPU that also judges.
  void ReleaseJudges() { rollouts_.ReleaseJudges(); }
  RunFile& run() { return run_; }

 private:
  std::optional<Json> Evaluate(const EvaluationTerms& terms, const std::string& name,
                               const std::vector<std::string>& problems, const CancelToken* drain,
                               const CancelToken* stop);

  std::optional<std::string> CollectProblems(int64_t step, int refill,
                                             const std::vector<std::string>& problems,
                                             const CancelToken* drain, const CancelToken* stop,
                                             TurnTimes* times);
  LearnTurns TurnsOf(const std::vector<std::string>& runs) const;
  void NoteSolveRates(const std::vector<std::string>& runs);
  PolicySettings SettingsWithCap(int max_tokens) const;

  const SampledRequest request_;
  const OnlineSettings& settings_;
  const TrainSuites& suites_;
  RunFile run_;
  Rollouts rollouts_;
  std::unique_ptr<Policy> policy_;
  ServedSampler* served_ = nullptr;  // policy_, where a server samples
  PolicySettings settings_of_policy_;
  std::mutex mutex_;
  std::map<int64_t, TurnTimes> times_;  // by step
};

}  // namespace kevin
