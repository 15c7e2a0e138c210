#pragma once
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

#include <string>

#include "policies/local/model/language_model.h"
#include "policies/local/train/optimizer.h"
#include "policies/local/train/options.h"
#include "policies/local/train/ranks.h"

namespace kevin::local {

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
