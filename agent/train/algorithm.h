#pragma once
// The algorithms of `kevin train`: each a setting of one loop. What a sample is worth is attribution's
// business (agent/attribution), what becomes of it is the loss's (policies/local/train/losses.h).
//
//   sft          imitate chosen turns (--select)
//   tpt          Think, Prune, Train (arXiv 2504.18116): imitate the best right turn of each problem; one
//                epoch, 1e-6, cosine
//   grpo         Kevin (arXiv 2507.11948): one sample a turn, return sum with 0.4, z-score over all turns of
//                all episodes of a task, clip 0.2 / 0.28, constant length, no KL, gradient norm 0.05, two
//                updates a batch
//   dr-grpo      the same without the division by the deviation (arXiv 2503.20783)
//   rloo         against the mean of the others, no clipping (arXiv 2402.14740)
//   trloo        Dr. Kernel (arXiv 2602.05885): per turn against the mean of the others, sum with 1,
//   sequences
//                whose geometric mean ratio to the sampler leaves [0.999, 1.001] left out
//   reinforce++  minus the task's mean, then whitened over the batch (arXiv 2501.03262)
//   dapo         clip 0.2 / 0.28, mean over all tokens (arXiv 2503.14476)
//   gspo         one ratio a sequence, clip 3e-4 / 4e-4, sequence means (arXiv 2507.18071)
//   cispo        bounded ratio as a weight, at most 5 (arXiv 2506.13585)
//   dpo          preferences between turns (arXiv 2305.18290)

#include <optional>
#include <string>
#include <vector>

#include "agent/attribution/attribution.h"
#include "policies/local/train/options.h"

namespace kevin {

enum class Material { kRollouts, kAnswers, kPairs };
// Of answers to imitate: all turns, the right ones, or the fastest right one of each problem.
enum class Picked { kAll, kCorrect, kBest };

struct Algorithm {
  std::string name;
  Material material = Material::kRollouts;
  Picked picked = Picked::kAll;
  Scheme scheme;
  bool whiten = false;        // advantages over each batch: mean 0, deviation 1
  int units_per_step = 8;     // rollouts: tasks; answers: samples; pairs: pairs
  double epochs = 0;          // how long by default; 0: by steps
  local::TrainOptions train;  // loss, schedule and so on; the rest as it stands
};

const std::vector<Algorithm>& KnownAlgorithms();
std::optional<Algorithm> FindAlgorithm(const std::string& name);

}  // namespace kevin
