#pragma once
// START HERE for the trainer process: the input of a trainer, its figures, and the protocol of the program
// kevin-trainer. A trainer sees token ids and numbers, never a database: agent/train makes batches from
// records. Plain values, no torch.

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kevin::local {

// One answer to one prompt: one turn of an episode.
struct Sample {
  std::vector<int32_t> prompt;
  std::vector<int32_t> completion;  // exactly as sampled; all of it is trained, including the end token
  // Log-probability of each completion token under the sampling distribution; empty: unknown.
  std::vector<float> sampler_logprobs;
  float temperature = 1;  // of sampling; log-probabilities are compared at it
  float advantage = 0;
  // Counted in the figures but not trained: the length limit cut the reply off.
  bool masked = false;

  int64_t tokens() const { return static_cast<int64_t>(prompt.size() + completion.size()); }
};

constexpr size_t kMostProbes = 16;

// The samples of one step.
struct Batch {
  int64_t step = 0;  // from 1
  std::vector<Sample> samples;
  // Samples that stay together: 1; or 2 for preferences, where each sample of even index is preferred to the
  // next one.
  int unit = 1;
  // Of the turns that the sampler made for the step, whether learnt from or not, for delta_logprob where `samples` do not
  // tell it: at the sampler's temperature, with its log-probabilities. At most kMostProbes.
  std::vector<Sample> probes;
  // Without trainable samples the step makes no updates; otherwise that is an error.
  bool may_be_idle = false;
};

// The figures of a step: sums and means over the whole batch and all ranks. NaN: none.
struct StepFigures {
  int64_t step = 0;
  int updates = 0;             // of the weights
  double loss = 0;             // mean over the updates
  double grad_norm = 0;        // before clipping; mean over the updates
  double learning_rate = 0;    // of the last update
  int64_t tokens = 0;          // that went through the model
  int64_t trained_tokens = 0;  // of completions that were trained
  double seconds = 0;
  double entropy = 0;                  // per trained token, nats
  double clip_low = 0, clip_high = 0;  // share of trained tokens whose ratio was clipped
  double kl = 0;                       // to the reference, k3, per trained token
  double policy_shift = 0;             // k3 to the policy before the step, per trained token
  // Mean |trainer - sampler| per token, before the step's first update. Of the trained tokens where the loss is a policy
  // gradient: its own passes tell it. Otherwise (imitation, preferences, no sample with a gradient) of the probes, or without
  // probes of a policy gradient's samples: at most kMostProbes of them, and no more than one forward pass of a rank takes.
  // NaN where none has the sampler's log-probabilities.
  double delta_logprob = 0;
  double delta_logprob_max = 0;
  double correction_mean = 0;     // of the importance weights
  double correction_dropped = 0;  // share of trained tokens that the correction left out
  double preference_accuracy = 0, preference_margin = 0;  // preferences only
  double flops = 0;  // of the step's products, forward and backward, without recomputation
  // Seconds from the last update until answers come from the new weights; only if the model is also sampled.
  double sync_s = std::numeric_limits<double>::quiet_NaN();
};

// Packs samples that go through the model together: first fit, longest first. Returns indices into `lengths`,
// in groups whose lengths sum to at most `budget`; a longer element forms a group of its own. Groups (by
// their first member) and their members are ordered by decreasing length; equal lengths keep their order.
// Equal on every machine.
std::vector<std::vector<size_t>> Pack(std::span<const int64_t> lengths, int64_t budget);

// 0 ... n-1 in an order determined by `seed` and `draw`.
std::vector<size_t> Shuffled(size_t n, uint64_t seed, uint64_t draw);

// The range [first, last) of `part` when n elements are split into `parts` ranges whose sizes differ by at
// most one.
struct Share {
  size_t first = 0, last = 0;
};
Share ShareOf(size_t n, size_t parts, size_t part);

// The protocol of kevin-trainer: frames of MessagePack on a stream, each after eight bytes of length
// (little-endian). Both ends are of the same build.
//
//   to the trainer                  from it
//   {"open": options}               {"opened": {"steps", "trained", "rank", "ranks"}}
//   {"open": ..., "sample": {...}}  the same with "url", "model", "context": an OpenAI-compatible server over
//                                   the weights being trained (serve_training.h); "split": true where all ranks
//                                   compute its answers together, and the URL is rank 0's (split_sampling.h)
//   {"run": id}                     {"named": id}          the run that served answers name as their origin
//   {"step": batch}                 {"figures": figures}
//   {"save": true}                  {"saved": folder}      a checkpoint
//   {"write": folder}               {"written": folder}    the model's weights there, in place of what it has
//   {"finish": true}                {"saved": folder}      the trained model
//   {"restore": checkpoint}         {"restored": steps}    its weights, to sample from
//   {"exchange": text}              {"exchanged": texts}   of all ranks, in their order; waits for all of them
//                                   {"error": {"code", "what", "next"}} instead of any of these
//
// The trainer is a separate program so that `kevin` links no torch, starts in milliseconds, and survives a
// trainer that runs out of memory.

nlohmann::json ToJson(const Batch& batch);
Batch BatchFromJson(const nlohmann::json& json);    // throws nlohmann::json::exception
nlohmann::json ToJson(const StepFigures& figures);  // NaN is null
StepFigures StepFiguresFromJson(const nlohmann::json& json);

// Of all numbers of a batch: equal for equal batches, and with great probability for these only.
std::string FingerprintOf(const Batch& batch);

// False when the other end is closed.
bool WriteFrame(int file, const nlohmann::json& message);
// nullopt at the end of the stream. Throws Error(kBroken) for an invalid frame.
std::optional<nlohmann::json> ReadFrame(int file);

}  // namespace kevin::local
