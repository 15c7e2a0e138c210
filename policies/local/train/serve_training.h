#pragma once
// The trainer's end of the stream (wire.h).

#include <functional>
#include <memory>
#include <string>

#include "policies/local/model/language_model.h"
#include "policies/local/train/options.h"

namespace kevin::local {

// How the model of a run comes to be. The default loads options.model (or the newest checkpoint's, to go on)
// and attaches adapters where they are trained.
using ModelMaker =
    std::function<std::unique_ptr<LanguageModel>(const TrainOptions& options, const std::string& checkpoint)>;
std::unique_ptr<LanguageModel> LoadForTraining(const TrainOptions& options, const std::string& checkpoint);

// Answers until the other side is gone. What goes wrong is answered, and ends it.
void ServeTraining(int in, int out, const ModelMaker& make_model = LoadForTraining);

// Answers from the model that is being trained: an engine and a server on a Unix socket over the very weights
// that the trainer writes to, so that nothing is copied between the two; or, on another device, over a second
// set that is brought up to date after each step.
//
// With one set the model either samples or trains: while a step is learnt answers under way stand still and
// go on afterwards, with the new weights. With two, answers are made meanwhile from the old ones.

struct SamplingOptions {
  std::string socket;        // where requests are taken; its owner's alone
  std::string device;        // of a second set of weights; empty: the trainer's own
  int context_tokens = 0;    // of prompt and answer; 0: the model's, or what the cache holds
  int64_t cache_tokens = 0;  // of keys and values; 0: on a CPU some contexts, on a GPU 40 % of what is free
};

class SampledModel {
 public:
  // `second`: the second set of weights, null: there is one only; `model` must outlive this. `version`: the
  // steps that the model has learnt. Throws Error(kMachine) when the cache does not fit.
  SampledModel(LanguageModel& model, std::unique_ptr<LanguageModel> second, const TrainOptions& training,
               const SamplingOptions& options, int64_t version);
  ~SampledModel();

  const std::string& Url() const;   // "unix:..."
  const std::string& Name() const;  // of the model, for requests
  int ContextTokens() const;
  bool IsSecond() const;  // there are two sets

  // Runs `learn`, which changes the model's weights; answers that begin after it come from the new ones and
  // say `version`. Returns the seconds from the end of `learn` until they can.
  double Learn(int64_t version, const std::function<void()>& learn);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace kevin::local
