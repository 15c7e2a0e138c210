#pragma once
// The options of a trainer as plain values, with their JSON form (stored in checkpoints, sent by `kevin
// train`), and the learning-rate schedule. Formulas of the losses are in losses.h, of the optimiser in
// optimizer.h. No torch.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace kevin::local {

enum class Surrogate {
  kClip,          // PPO, GRPO, DAPO: ratio per token, clipped
  kSequenceClip,  // GSPO: one ratio per sequence, the geometric mean of its tokens'
  kCispo,         // clipped ratio as a constant weight of the log-probability
  kReinforce,     // advantage times log-probability
  kCrossEntropy,  // imitation; advantages are ignored
  kPreference     // DPO over pairs
};
enum class Normaliser {
  kTokenMean,     // over all trained tokens of the update (DAPO)
  kSequenceMean,  // mean over a sequence's tokens, then over sequences (GRPO)
  kSequenceSum,   // sum over a sequence's tokens, mean over sequences
  kConstant       // the same, divided by constant_tokens (Dr. GRPO, Kevin)
};
enum class Correction {
  kNone,
  kTruncate,     // weight min(w, high) per token (TIS)
  kMask,         // weight w per token inside [low, high], else 0 (IcePop)
  kSequenceMask  // 1 where the geometric mean over a sequence is inside [low, high], else 0; and 0 where any
                 // token's w is below 1e-4
};
enum class KlEstimator { kNone, kK1, kK2, kK3 };
// The policy in the denominator of the ratio.
enum class OldPolicy {
  kTrainer,  // the trainer's own before the step; Correction handles its difference to the sampler
  kSampler   // as recorded during sampling; needs no extra forward pass
};

struct LossOptions {
  Surrogate surrogate = Surrogate::kClip;
  double clip_low = 0.2, clip_high = 0.28;  // the ratio stays in [1 - low, 1 + high]
  double dual_clip = 0;                     // bound for negative advantages, above 1; 0: none
  Normaliser normaliser = Normaliser::kConstant;
  double constant_tokens = 16384;
  Correction correction = Correction::kNone;
  double correction_low = 0, correction_high = 2;
  OldPolicy old_policy = OldPolicy::kTrainer;
  KlEstimator kl = KlEstimator::kNone;  // needs a reference model when not kNone
  double kl_weight = 0;
  double entropy_weight = 0;
  double preference_beta = 0.1;
};

enum class Decay { kConstant, kCosine, kLinear };
struct ScheduleOptions {
  double learning_rate = 2e-6;
  Decay decay = Decay::kConstant;
  double warmup = 0.03;       // share of all updates
  double final_fraction = 0;  // of the learning rate, at the end of a decay
};

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
  double weight_decay = 0;      // of matrices; norms and biases never decay
  double max_grad_norm = 0.05;  // 0: no clipping
  bool on_cpu = false;          // state and update in main memory, if they do not fit the device
};

struct LoraOptions {
  int rank = 0;  // 0: all weights are trained
  double alpha = 32;
  std::string targets;  // projections, separated by commas; empty: all seven
};
std::vector<std::string> TargetsOf(const LoraOptions& options);

// What a run learns from, for the memory plan and for the check that a resumed run learns from the same.
struct LearntData {
  // Tokens of the longest sample, or of both samples of the longest pair: they go through the model together, also where
  // they exceed micro_tokens. Over records the most that occurs, online the most that may occur; 0: unknown.
  int64_t longest_tokens = 0;
  // Over records: the count of units, and a hash of their contents in order. 0 and empty: turns are made for each step, or
  // the checkpoint was written before these were stored.
  int64_t units = 0;
  std::string fingerprint;
};

// Which model a run trains, for the check that a resumed run trains the same; filled in by the trainer. Empty: unknown, or
// the checkpoint was written before these were stored.
struct TrainedModel {
  std::string fingerprint;  // of `model`, wherever its folder is (files/weights_hash.h)
  std::string reference;    // likewise, of a reference that is loaded
  std::string dtype;        // of the weights in training
};

// The next step where ranks turn out not to have a common --out.
inline constexpr const char* kShareOutput =
    "start all ranks with the same options, and --out on a file system that they share";

struct TrainOptions {
  std::string model;      // Hugging Face folder
  std::string reference;  // for KL and preferences; empty: the model at the start
  std::string output;
  std::string dtype;            // "float32", "bfloat16"; empty: as the folder says
  std::string device = "auto";  // "cpu", "cuda:0"; "auto" and "cuda" are resolved before a trainer opens
  std::string quantization = "none";  // of frozen weights: "none", "int8", "nf4"
  bool recompute = false;             // activation checkpointing
  bool shard = false;                 // weights too are split over the ranks (sharded_weights.h)
  bool choose_recompute = true;       // also where the run would not fit otherwise (train_plan.h)
  // Sharded: the ranks sample together, each with a slice of the weights (split_sampler.h), which are never whole.
  bool split_sampler = false;
  bool choose_split_sampler = true;  // also where sampling from whole weights would not fit (train_plan.h)
  LossOptions loss;
  ScheduleOptions schedule;
  AdamOptions adam;
  LoraOptions lora;
  LearntData data;
  TrainedModel trained;
  int64_t steps = 40;
  int units_per_step = 8;  // that a batch is made of (agent/train): tasks, answers or pairs
  int updates_per_step = 2;
  // A step with few units has fewer updates, of so many units each (samples, or pairs of them); 0: all updates.
  int units_per_update = 0;
  int64_t micro_tokens = 16384;   // of a forward pass, unless a sample or pair is longer
  int64_t logits_tokens = 1024;   // with logits in memory at once
  int64_t checkpoint_every = 10;  // steps; 0: only at the end
  int keep = 3;                   // checkpoints
  uint64_t seed = 0;
  // Each step starts from the weights at the start of the run, with a new optimiser and schedule, on data
  // made by the step before (Think-Prune-Train from the base).
  bool from_base = false;
  // The most by which the log-probabilities of trainer and sampler may differ, mean over a step's tokens; beyond
  // it a step is an error. 0: no limit.
  double gap_limit = 0;
  int64_t judge_bytes = 0;        // that judging takes on the device that trains; 0: nothing is judged there
  bool judges_meanwhile = false;  // also during a step: turns are made ahead
  bool resume = false;            // from the newest checkpoint in `output`, if any
};

// Log-probabilities are compared with those of a reference model.
bool NeedsReference(const TrainOptions& options);
// And that is a second model: not the one at the start, which is there without the adapters.
bool LoadsReference(const TrainOptions& options);

nlohmann::json ToJson(const TrainOptions& options);
// Missing members keep their defaults. Throws Error(kBadRequest) that names an unknown member or an invalid
// value.
TrainOptions TrainOptionsFromJson(const nlohmann::json& json);

// The learning rate of update `update` (u, from 0) of `updates` (U) in all, with W = ceil(warmup * U) of
// warm-up:
//   u < W      rate * (u + 1) / W
//   else       rate * (f + (1 - f) * shape(p)),  p = (u - W) / max(1, U - W), f = final_fraction
// where shape is 1 (constant), (1 + cos(pi p)) / 2 (cosine) or 1 - p (linear).

double LearningRate(const ScheduleOptions& options, int64_t update, int64_t updates);

}  // namespace kevin::local
