#pragma once
// START HERE for training: what a trainer is given. It sees token ids and numbers, never a database: whoever
// makes batches (agent/train) has turned records into these. Plain values, no torch.

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
  std::vector<int32_t> completion;  // exactly as sampled; all of it is trained, the end token included
  // Of each token of the completion under the distribution it was drawn from; empty: unknown.
  std::vector<float> sampler_logprobs;
  float temperature = 1;  // that it was sampled at; log-probabilities are compared at it
  float advantage = 0;
  // Counted in the figures but not trained: the reply was cut off by the length limit.
  bool masked = false;

  int64_t tokens() const { return static_cast<int64_t>(prompt.size() + completion.size()); }
};

// What one step learns from.
struct Batch {
  int64_t step = 0;  // from 1
  std::vector<Sample> samples;
  // Samples that stay together: 1, or 2 for preferences, where an even one is chosen over the odd one after
  // it.
  int unit = 1;
  // Nothing to train on is then a step without updates instead of an error.
  bool may_be_idle = false;
};

// What a step came to; sums and means over the whole batch, all ranks together. NaN: there is none.
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
  double delta_logprob = 0;            // mean |trainer - sampler| per token, before the step's first update
  double delta_logprob_max = 0;
  double correction_mean = 0;     // of the importance weights
  double correction_dropped = 0;  // share of trained tokens that the correction left out
  double preference_accuracy = 0, preference_margin = 0;  // preferences only
  double flops = 0;  // of the step's products, forward and backward, recomputation left out
  // From the last update until answers come from the new weights; only where the model is also sampled.
  double sync_s = std::numeric_limits<double>::quiet_NaN();
};

// Which samples go through the model together. Plain arithmetic, the same on every machine.

// First fit, the longest first: indices into `lengths`, grouped so that no group's lengths add up to more
// than `budget`; what is longer than that by itself is a group of its own. Within a group, and groups by
// their first member, in the order of the longest first; equal lengths keep their order.
std::vector<std::vector<size_t>> Pack(std::span<const int64_t> lengths, int64_t budget);

// 0 ... n-1 in an order that `seed` and `draw` fix.
std::vector<size_t> Shuffled(size_t n, uint64_t seed, uint64_t draw);

// The share of n things, cut into `parts` runs that differ by one at most, that `part` has: [first, last).
struct Share {
  size_t first = 0, last = 0;
};
Share ShareOf(size_t n, size_t parts, size_t part);

// How a trainer is talked to: frames of MessagePack on a stream, eight bytes of length (little-endian) before
// each. Both ends are of the same build.
//
//   to the trainer                  from it
//   {"open": options}               {"opened": {"steps", "trained", "rank", "ranks"}}
//   {"open": ..., "sample": {...}}  the same with "url", "model", "context": requests are answered there, as
//                                   OpenAI's API has it, from the weights being trained (sampled_model.h)
//   {"step": batch}                 {"figures": figures}
//   {"save": true}                  {"saved": folder}      a checkpoint
//   {"finish": true}                {"saved": folder}      the model itself
//   {"restore": checkpoint}         {"restored": steps}    its weights, to sample from
//                                   {"error": {"code", "what", "next"}} instead of any of these
//
// Why a program of its own (kevin-trainer) at the end of a socket: `kevin` links no torch, starts in
// milliseconds, and outlives a trainer that runs out of memory; the trainer sees no database.

nlohmann::json ToJson(const Batch& batch);
Batch BatchFromJson(const nlohmann::json& json);    // throws nlohmann::json::exception
nlohmann::json ToJson(const StepFigures& figures);  // NaN is null
StepFigures StepFiguresFromJson(const nlohmann::json& json);

// False when the other side is gone.
bool WriteFrame(int file, const nlohmann::json& message);
// Nothing at the end of the stream. Throws Error(kBroken) for what is no frame.
std::optional<nlohmann::json> ReadFrame(int file);

}  // namespace kevin::local
