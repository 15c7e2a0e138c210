#pragma once
// OUT/rollouts/00000012.jsonl: some of the turns that a step learnt from, for people to read. All of them are
// in the database.

#include <filesystem>

#include "agent/train/batches.h"

namespace kevin {

// At most 64 turns, evenly over the batch, one object a line: step, episode, turn, problem, outcome, correct,
// speedup, score, return, advantage, tokens, stop_reason, model, reply (its first 4,000 bytes). Throws
// Error(kBroken) when the disk is full.
void WriteRollouts(const std::filesystem::path& folder, const LearnBatch& batch);

}  // namespace kevin
