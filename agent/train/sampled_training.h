#pragma once
// What a training run needs to make turns with its own model: a policy over the trainer, judges, a database,
// and the run's file. Collections for steps (--online) and evaluations on the way.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/train/batches.h"
#include "agent/train/collected_batches.h"
#include "agent/train/evaluation.h"
#include "agent/train/rollouts.h"
#include "agent/train/trained_policy.h"
#include "agent/train/trainer_process.h"

namespace kevin {

// The problems of a run, each list by id. Constructing it says what is wrong with the suites.
struct TrainSuites {
  std::vector<std::string> learnt, dev, test;

  // `without` are not learnt from. Throws Error(kBadRequest) where a problem is in two of the lists.
  TrainSuites(const OnlineSettings& settings, const std::string& without);
};

// The ids of a suite; none for "".
std::vector<std::string> IdsOfSuite(const std::string& suite);

struct SampledRequest {
  std::string output, database, algorithm;
  int64_t steps = 0;
  uint64_t seed = 0;
  std::string device;  // of the trainer
};

class SampledTraining {
 public:
  // `judges`: one environment over all judges. All else that is given must outlive this.
  SampledTraining(const SampledRequest& request, const OnlineSettings& settings, const TrainSuites& suites,
                  TrainerProcess& trainer, const TrainerProcess::Opened& opened, Progress& progress,
                  std::unique_ptr<Environment> judges);

  // Which problems a step's turns are about: all of them once, in an order of its own, before any comes
  // again.
  std::vector<std::string> ProblemsOfStep(int64_t step) const;
  std::optional<std::string> CollectStep(int64_t step, const CancelToken* drain, const CancelToken* stop);

  // The model as it is, on the dev suite. nullopt: broken off.
  std::optional<Json> EvaluateDev(int64_t step, const CancelToken* drain, const CancelToken* stop);
  // Whether the latest evaluation is the best so far; says so in the run's file. `folder`: its checkpoint.
  bool IsBest(const Json& event) const;
  void SetBest(const Json& event, const std::string& folder);
  std::optional<std::string> BestCheckpoint() const;
  int64_t BestStep() const;

  // The weights that the trainer answers with, of `step`, on the test suite: once a run. Throws
  // Error(kBadRequest) where it was read before. One that was broken off goes on.
  std::optional<Json> EvaluateTest(int64_t step, const CancelToken* drain, const CancelToken* stop);
  void RequireUntested() const;  // the same, beforehand

  const std::string& database() const { return request_.database; }
  const EnvironmentFacts& facts() const { return rollouts_.facts(); }
  RunFile& run() { return run_; }

 private:
  std::optional<Json> Evaluate(const EvaluationTerms& terms, const std::string& name,
                               const std::vector<std::string>& problems, const CancelToken* drain,
                               const CancelToken* stop);

  const SampledRequest request_;
  const OnlineSettings& settings_;
  const TrainSuites& suites_;
  RunFile run_;
  Rollouts rollouts_;
  TrainedPolicy policy_;
};

}  // namespace kevin
