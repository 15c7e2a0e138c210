#pragma once
// START HERE for `kevin train`: from records to a trained model. A run (`kevin train`, tools/train_run.cc) is
// made of these parts, in the order in which to read them:
//
//   algorithm.h          what is learnt from and with which loss: the settings of one loop (below)
//   turns.h              the turns of one or more databases, with their attribution, grouped into units
//   batches.h            the units of a step -> token ids, mask, log-probabilities, advantages
//     model_text.h       the tokens of the model in training
//   rank_meeting.h       what ranks agree on before each step
//   rank_locks.h         which rank holds which device's lock meanwhile
//   batch_source.h       the sequence of batches: stored records (offline) or new turns for each step (online)
//   placement.h          which rank trains, samples and judges on which device
//   device_choice.h      GPU or CPU, where the command line names none
//     rollouts.h         online: the model's own turns, through the queue and database of `kevin collect`
//   trainer_process.h    the child process that holds the model and learns from a batch (policies/local/train)
//   sampled_training.h   online steps, and evaluations during a run
//   step_log.h           the figures of each step: JSON, metrics.jsonl, TensorBoard, a line of text
//   run_folder.h         the run's folder OUT: run.json, best/, rollouts/
//
// No file here includes torch: the trainer is a child process.
//
// The algorithms. The value of a sample comes from attribution (agent/attribution), the effect of a sample on
// the model from the loss (policies/local/train/losses.h).
//
//   name         settings                                                               source
//   sft          imitate chosen turns (--select)
//   tpt          imitate the fastest correct turn of each problem (kind, device, size); Think, Prune, Train,
//                1e-6, cosine                                                               arXiv 2504.18116
//   grpo         one sample a turn, return sum with 0.4, z-score over all turns of      Kevin,
//                all episodes of a task, clip 0.2 / 0.28, constant length, no KL,       arXiv 2507.11948
//                gradient norm 0.05, two updates a batch
//   dr-grpo      as grpo, without the division by the deviation                         arXiv 2503.20783
//   rloo         against the mean of the other turns, no clipping                       arXiv 2402.14740
//   trloo        against the mean of the other turns of the same number, return sum     Dr. Kernel,
//                with 1; sequences whose geometric mean ratio to the sampler is         arXiv 2602.05885
//                outside [0.999, 1.001] are left out
//   reinforce++  minus the task's mean, then whitened over the batch                    arXiv 2501.03262
//   dapo         clip 0.2 / 0.28, mean over all tokens, dynamic sampling (--refill      DAPO,
//                10; over records: tasks without a difference are left out), the        arXiv 2503.14476
//                penalty of overlong replies, for which cut-off ones count; 1e-6; the
//                rest as grpo
//   grpo-token-mean  the loss of dapo alone                                             arXiv 2503.14476
//   gspo         one ratio a sequence, clip 3e-4 / 4e-4, sequence means                 arXiv 2507.18071
//   cispo        the bounded ratio, at most 5, as a weight                              arXiv 2506.13585
//   dpo          preferences between turns                                              arXiv 2305.18290

#include <optional>
#include <string>
#include <vector>

#include "agent/attribution/attribution.h"
#include "policies/local/train/options.h"

namespace kevin {

// What a unit of training is: all turns of a task, one reply to imitate, or a pair of replies.
enum class Material { kRollouts, kAnswers, kPairs };
// Replies to imitate: all, the correct ones, or the fastest correct one of each problem, kind, device and size.
enum class Picked { kAll, kCorrect, kBest };

struct Algorithm {
  std::string name;
  Material material = Material::kRollouts;
  Picked picked = Picked::kAll;
  Scheme scheme;
  bool whiten = false;        // advantages of each batch: mean 0, deviation 1
  int refills = 0;            // online, unless asked otherwise: OnlineSettings::refills
  double epochs = 1;          // default length over stored records; online runs are counted in steps
  local::TrainOptions train;  // loss, schedule and so on
};

const std::vector<Algorithm>& KnownAlgorithms();
std::optional<Algorithm> FindAlgorithm(const std::string& name);

}  // namespace kevin
