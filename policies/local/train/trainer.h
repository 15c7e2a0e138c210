#pragma once
// Batches in, better weights out. A trainer owns its model's optimiser and the schedule; the model may be
// used by others (a sampler) between steps.
//
//   Trainer trainer(options, model, reference, ranks);
//   StepFigures figures = trainer.Step(batch);        updates_per_step updates of the weights
//   trainer.Save();                                   a checkpoint (checkpoint.h)
//
// A batch is cut into updates_per_step parts in an order that seed and step fix. Ratios are taken against the
// policy before the step's first update, so the first update is on-policy and the later ones are not. Samples
// are packed into micro-batches of at most micro_tokens; several ranks take turns with them. Losses are sums
// over the whole update, so neither packing nor the number of ranks changes them beyond rounding.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "policies/local/model/language_model.h"
#include "policies/local/train/batch.h"
#include "policies/local/train/losses.h"
#include "policies/local/train/optimizer.h"
#include "policies/local/train/options.h"
#include "policies/local/train/ranks.h"

namespace kevin::local {

class Trainer {
 public:
  // `model` is trainable, with its adapters attached if there are any. `reference` is null where the loss
  // needs none. Both, and `ranks`, must outlive the trainer.
  Trainer(TrainOptions options, LanguageModel& model, LanguageModel* reference, Ranks& ranks);
  ~Trainer();

  // Steps come in order: StepsDone() + 1. A batch that may be idle and has nothing to train on makes no
  // update; its figures are NaN. Throws Error(kBroken) when the loss or a gradient is not finite: the model
  // is then as it was before that update, and the trainer of no more use. Error(kBadRequest) for a batch that
  // does not fit the options.
  StepFigures Step(const Batch& batch);
  int64_t StepsDone() const { return steps_done_; }

  // Into options.output/checkpoints; all ranks call it. Returns the new folder.
  std::string Save();
  // Goes on from a checkpoint of this run: weights, optimiser and steps are as they were then.
  void Resume(const std::string& checkpoint);

  const TrainOptions& options() const { return options_; }

 private:
  struct Micro;
  struct Update;
  class StepRun;

  TrainOptions options_;
  LanguageModel& model_;
  LanguageModel* const reference_;
  Ranks& ranks_;
  Optimizer optimizer_;
  std::vector<at::Tensor> base_;  // the optimiser's share at the start; only where steps begin from it
  // Parameters that every token is multiplied with, and those that only the trained ones are.
  double products_ = 0, head_products_ = 0;
  bool trains_weights_ = false;  // not adapters alone
  int64_t steps_done_ = 0;
};

// A training run on disk, so that it can go on to the bit where it stopped:
//
//   OUTPUT/checkpoints/step-00000040/
//     model/                      Hugging Face folder; adapter/ in PEFT's format where only those are trained
//     optimizer-0-of-2.safetensors  each rank's share: float32 weights, moments, counters; random state
//     trainer.json                steps done, options, ranks
//
// A checkpoint appears whole or not at all (all ranks need to see OUTPUT as one folder). The position in the
// data is the number of steps, since a batch is a function of its step. A run may go on with another number
// of ranks, then not to the bit.

// All ranks call it. Removes the oldest beyond options.keep. Returns the folder. Throws Error(kBroken) when
// the disk is full: the older ones are then still there.
std::string SaveCheckpoint(const TrainOptions& options, const LanguageModel& model,
                           const Optimizer& optimizer, int64_t steps, Ranks& ranks);

// The newest in `output`; empty: there is none.
std::string NewestCheckpoint(const std::string& output);

// That a checkpoint's folder is of. Throws Error(kBadRequest) for what is none.
int64_t StepsOf(const std::string& folder);

// Into the optimiser, and through it into the model's parameters. Returns the steps done. Throws
// Error(kBadRequest) where the checkpoint is damaged or of another model.
int64_t LoadCheckpoint(const std::string& folder, const TrainOptions& options, Optimizer* optimizer);

}  // namespace kevin::local
