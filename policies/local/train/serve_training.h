#pragma once
// The program kevin-trainer: a trainer behind the protocol of batch.h, and, if requested, a server that
// answers from the model being trained.
//
// Identity of the weights in records. An answer of a model in training names its weights as RUN@STEPS: the id
// of the training run (OUTPUT/run.json) and the steps that the model had learnt when the answer began. It
// stands in the place of the content hash of a fixed model (field `weights_hash`; files/weights_hash.h),
// because hashing all weights after every step would cost more than the copy that serving them costs. Equal
// identities mean equal weights, up to rounding where a run was resumed and repeated steps. RUN@STEPS leads
// to OUTPUT/checkpoints/step-STEPS where that step was saved. Until the run is named, the identity is
// unknown.

#include <functional>
#include <memory>
#include <string>

#include "policies/local/generate/model_runner.h"
#include "policies/local/model/language_model.h"
#include "policies/local/model/torch_runner.h"
#include "policies/local/train/options.h"
#include "policies/local/train/sampling_options.h"

namespace kevin::local {

// Loads the model of a run. The default loads options.model, or the newest checkpoint's to continue, and
// attaches adapters where these are trained.
using ModelMaker =
    std::function<std::unique_ptr<LanguageModel>(const TrainOptions& options, const std::string& checkpoint)>;
std::unique_ptr<LanguageModel> LoadForTraining(const TrainOptions& options, const std::string& checkpoint);

// Answers requests until the other end of the stream is closed. An error is sent as an answer, and ends it. Where another
// rank is lost, the error may be sent between two answers, and ends the process, whatever it waits for.
void ServeTraining(int in, int out, const ModelMaker& make_model = LoadForTraining);

// A server over the model being trained: an engine on a Unix socket over the same weights that the trainer
// writes to, so that nothing is copied; or over a second set of weights on another device, updated after each
// step.
//
// With one set of weights the model either samples or trains: during a step running answers pause, the cache's memory
// is free for activations, and answers continue with the new weights. With two, answers continue from the old weights during the step.
class SampledModel {
 public:
  // `second`: the second set of weights; null: one set only. `model` must outlive this. `version`: the steps
  // that the model has learnt. `learning_bytes`: that learning will take on the device of the second set. Throws
  // Error(kMachine) when the cache does not fit.
  SampledModel(LanguageModel& model, std::unique_ptr<LanguageModel> second, const TrainOptions& training,
               const SamplingOptions& options, int64_t version, int64_t learning_bytes = 0);
  // Over `runner`, which computes with copies of the weights; `refresh` brings them up to date at the end of each update.
  SampledModel(std::unique_ptr<ModelRunner> runner, std::function<void()> refresh,
               const TrainOptions& training, const SamplingOptions& options, int64_t version);
  ~SampledModel();

  const std::string& Url() const;   // "unix:..."
  const std::string& Name() const;  // of the model, for requests
  int ContextTokens() const;

  // The id of the run. Answers that begin afterwards carry the identity RUN@STEPS.
  void SetRun(const std::string& run);

  // Runs `update`, which changes the model's weights to those after `version` steps. With one set of weights answers that
  // begin afterwards come from the new weights, with two those that begin after BringUp. Returns the seconds from the end of
  // `update` until they can; with two 0.
  double Update(int64_t version, const std::function<void()>& update);
  // Copies the trainer's weights to the second set, if there is one, which computes on both devices. Apart from Update, so
  // that the caller can keep measurements on the sampler's device away from the copy and not from the whole step. Returns the
  // seconds that it took.
  double BringUp();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The pages of a runner's cache for `model`, and its other limits. Throws Error(kMachine) when they do not fit.
TorchRunnerOptions RunnerOptionsFor(const LanguageModel& model, const SamplingOptions& options,
                                    int64_t learning_bytes = 0);

}  // namespace kevin::local
