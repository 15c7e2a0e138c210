#pragma once
// Trains a model: batches in, updated weights out, and checkpoints. A trainer owns the model's optimiser and
// the schedule; a sampler may use the model between steps.
//
//   Trainer trainer(options, model, reference, ranks);
//   StepFigures figures = trainer.Step(batch);        updates_per_step updates of the weights
//   trainer.Save();                                   a checkpoint (below)
//
// A batch is split into updates_per_step parts in an order determined by seed and step. Ratios are relative
// to the policy before the step's first update, so the first update is on-policy and later ones are not.
// Samples are packed into micro-batches of at most micro_tokens, distributed over the ranks. Losses are sums
// over the whole update, so neither packing nor the number of ranks changes them beyond rounding.
//
// Where kernels are judged on the same device (TrainOptions::judge_bytes), the memory that torch keeps for further tensors goes
// back to it when a trainer is made, after each step, and after Resume.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "policies/local/model/device.h"
#include "policies/local/model/language_model.h"
#include "policies/local/train/batch.h"
#include "policies/local/train/losses.h"
#include "policies/local/train/optimizer.h"
#include "policies/local/train/options.h"
#include "policies/local/train/ranks.h"

namespace kevin::local {

class Trainer {
 public:
  // `model` is trainable, with its adapters attached if any. `reference`: null if the loss needs none; `model` itself
  // for the model without its adapters. All three must outlive the trainer.
  Trainer(TrainOptions options, LanguageModel& model, LanguageModel* reference, Ranks& ranks);
  ~Trainer();

  // Steps come in order: StepsDone() + 1. A batch that may be idle and has nothing to train on makes no
  // update; its figures are NaN. Throws Error(kBroken) when the loss or a gradient is not finite: the model
  // is then as before that update, and the trainer must not be used further. Error(kBadRequest) for a batch
  // that does not fit the options.
  // Sharded weights are not whole afterwards.
  StepFigures Step(const Batch& batch);
  int64_t StepsDone() const { return steps_done_; }

  // Writes a checkpoint to options.output/checkpoints; all ranks call it. Returns its folder.
  std::string Save();
  // Writes the trained model, or its adapters, in place of what is in the folder; rank 0 writes, all ranks call it.
  void SaveModel(const std::string& folder);
  // Continues from a checkpoint of this run: restores weights, optimiser and steps.
  void Resume(const std::string& checkpoint);

  // Gathers sharded weights until the next step, for a sampler of the model. All ranks call it. Saving does not need it.
  void MakeWhole();
  // Calls `visit` with each layer of sharded weights while it is whole. All ranks call it.
  void VisitLayers(const std::function<void(int layer)>& visit) { shards_->VisitLayers(visit); }

  const TrainOptions& options() const { return options_; }

 private:
  std::unique_ptr<LanguageModel> WholeOnHost();
  void MakeRoomForJudge() const {
    if (options_.judge_bytes > 0) ReturnFreeMemory(model_.Options().device);
  }

  struct Micro;
  struct Update;
  class StepRun;

  TrainOptions options_;
  LanguageModel& model_;
  LanguageModel* const reference_;
  Ranks& ranks_;
  std::unique_ptr<ShardedWeights> shards_;  // null: weights are always whole on every rank
  Optimizer optimizer_;
  std::vector<at::Tensor> base_;  // the optimiser's share at the start; only where steps begin from it
  // Numbers of parameters multiplied with every token, and with trained tokens only.
  double products_ = 0, head_products_ = 0;
  bool trains_weights_ = false;  // not adapters alone
  int64_t steps_done_ = 0;
};

// A checkpoint: a training run on disk that can be continued to the bit:
//
//   OUTPUT/checkpoints/step-00000040/
//     model/                      Hugging Face folder; adapter/ in PEFT's format where only those are trained
//     optimizer-0-of-2.safetensors  each rank's share: float32 weights, moments, counters; random state
//     trainer.json                steps done, options with LearntData and TrainedModel, ranks
//
// A checkpoint appears complete or not at all. OUTPUT must be the same folder for all ranks. The position in
// the data is the number of steps, because a batch is a function of its step. A run may continue with another
// number of ranks, and with sharded weights or without, then not to the bit.

// Writes one; all ranks call it. Removes the oldest beyond options.keep. Returns the folder. Throws
// Error(kBroken) on all ranks when one cannot write, as on a full disk, or writes into another folder than rank 0; older
// checkpoints are kept.
std::string SaveCheckpoint(const TrainOptions& options, const LanguageModel& model,
                           const Optimizer& optimizer, int64_t steps, Ranks& ranks);

// The newest one in `output`; empty: none.
std::string NewestCheckpoint(const std::string& output);
// The newest one in options.output with options.resume, else empty; all ranks call it. Throws Error(kBadRequest) on all
// ranks where they have different ones.
std::string CheckpointToResume(const TrainOptions& options, Ranks& ranks);

// The steps of a checkpoint. Throws Error(kBadRequest) if the folder is none.
int64_t StepsOf(const std::string& folder);

// Throws Error(kBadRequest) where the checkpoint was made with another seed, other updates a step, other adapters, from
// another model (TrainedModel, quantisation), or over other records or with another batch: the run would not go on from it.
// Reads no weights.
void RequireSameOptions(const std::string& folder, const TrainOptions& options);

// Restores the optimiser, and through it the parameters of `model`. Each rank reads its own share. All ranks call it.
// Returns the steps done. Throws Error(kBadRequest) on all ranks where one finds the checkpoint damaged or of another
// model.
int64_t LoadCheckpoint(const std::string& folder, const TrainOptions& options, const LanguageModel& model,
                       Ranks& ranks, Optimizer* optimizer);

}  // namespace kevin::local
