#pragma once
// A run of `kevin train` from its command line to its end: records or the model's own turns, steps of the trainer,
// checkpoints, evaluations. Start at agent/train/algorithm.h for the parts.

namespace kevin {

struct TrainRequest;

// Returns the exit code: done, or interrupted by the user. Throws Error.
int RunTraining(const TrainRequest& request);

}  // namespace kevin
