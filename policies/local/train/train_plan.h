#pragma once
// The memory that one rank of a training run needs on its device, computed from the model's config before anything is
// loaded, and whether activations must be recomputed for it to fit. No torch.
//
// With P numbers of the model, T trained ones (all, or those of adapters), R ranks, N tokens of a forward pass:
//
//   weights      P in the compute type (quantised: in 8 or 4 bits), and T in float32 where these are adapters
//   gradients    T of autograd's in the type of the trained numbers, and T in float32, summed over a step
//   optimiser    3 T in float32 (weights, two moments), split over the ranks; with optimizer_on_cpu in main memory, which the
//                ranks of a machine share, and the summed gradients and `gathering` with it, unless the device is a CPU
//   base         with from_base: as much again, in main memory
//   activations  what the backward pass needs of N tokens: of every layer; with recomputation the input of every
//                layer, and one layer whole. N is micro_tokens, or that of the longest sample or pair where it has more
//   logits       of logits_tokens rows, with their gradients. They are freed when the layers' backward passes begin: what
//                one layer needs for its own comes in their place, and the larger of the two counts
//                sharded (TrainOptions::shard): of the layers each rank has 4 bytes a number of summed gradients and the
//                optimiser's 12, over R; the weights of two layers are whole at a time, also while the model is saved; of
//                gradients those of one layer, and those of one on the way to the other ranks, in float32, with the part of
//                their sum that comes back
//                All weights are whole once, while they are loaded and shared out, and between steps where the model is
//                sampled or a second copy of it. With split_sampler they are not whole then, and sampling needs 1/R of the
//                layers' weights and of the cache. Where they are not, one rank has them in main memory while it saves them.
//   gathering    one bucket of new weights in float32, during an update: not at the same time as activations
//   cache        of keys and values, while the model is sampled; it is given up while the model learns
//   second copy  of the weights, with adapters, where one is sampled (SamplingOptions::device), and a cache of its own; it
//                stays while the model learns. Counted on the device that has it: the one that trains, or another one
//   judge        where kernels are judged on the same device: the largest problem, between steps; also while the model learns,
//                where turns are made ahead

#include <cstdint>
#include <string>

#include "policies/local/files/model_config.h"
#include "policies/local/train/options.h"

namespace kevin::local {

constexpr int64_t kContextsOnCpu =
    4;  // that a cache holds in main memory where no number of tokens is asked for

// Those of several ranks may be on one device.
struct SecondCopies {
  int here = 0;                // on the device that trains
  std::string device;          // of this rank's copy, where it is another one
  int there = 0;               // on that device
  int64_t there_bytes = 0;     // available on it; 0: unknown, everything fits
  int64_t judge_bytes = 0;     // that judging takes on it
  int64_t context_tokens = 0;  // that each is sampled with
  int64_t cache_tokens = 0;    // asked for; 0: one context at least
};

struct TrainPlanRequest {
  int ranks = 1;
  int64_t device_bytes = 0;       // available to this rank; 0: unknown, everything fits
  int64_t context_tokens = 0;     // that the model is sampled with on the same device; 0: it is not
  int64_t cache_tokens = 0;       // asked for; 0: one context at least
  int64_t judge_bytes = 0;        // that judging takes on the same device between steps
  bool judges_meanwhile = false;  // and during a step
  bool has_reference = false;     // a second model, for KL or preferences
  bool trains_on_cpu = false;     // the device is the CPU: device_bytes are of main memory
  int64_t main_bytes = 0;         // available in main memory to all ranks of this machine; 0: unknown
  int ranks_here = 1;             // ranks of this machine
  SecondCopies copies;
};

struct TrainPlan {
  int64_t parameters = 0, trained = 0;
  int64_t whole_weights = 0;  // sharded: while loading, and while sampling without `split`
  int64_t slice = 0;  // of the layers' weights, that a rank samples with; sharded, if the model can be split
  // On the device that trains, but for `optimizer`, which may be in main memory.
  int64_t weights = 0, reference = 0, gradients = 0, optimizer = 0, activations = 0, logits = 0,
          gathering = 0;
  int64_t base = 0;           // on the CPU where that trains, else in main memory
  int64_t main_memory = 0;    // in main memory beside the device: of this rank
  int64_t main_needed = 0;    // of this machine's ranks, with copies there, while the model is saved
  int64_t cache = 0;          // of one context, or as asked for
  int64_t recomputed = 0;     // activations with recomputation
  bool recompute = false;     // as asked for, or because it does not fit otherwise
  bool split = false;         // split_sampler, as asked for, or because sampling does not fit otherwise
  bool fits_here = false;     // on the device that trains, and in main memory
  bool fits = false;          // and the second copies on theirs
  bool may_be_tried = false;  // `fits_here`, or misses it by no more than the plan is inexact
  // While learning, and between steps: while sampling or judging, where that takes more than learning leaves. 0: none does.
  int64_t learning = 0, sampling = 0;
  int64_t split_sampling = 0;   // the same with split_sampler; 0: it is not sampled, or cannot be split
  int64_t loading = 0;          // sharded: before the weights are shared out
  int64_t copy_cache = 0;       // of one second copy, whose weights are `whole_weights`
  int64_t there = 0;            // on the other device
  int64_t transient = 0;        // of `learning` what is not there between steps
  int64_t tokens_that_fit = 0;  // the largest forward pass; with recomputation if `recompute`
  int64_t needed = 0;           // on the device that trains: the largest of the sums that count here
  std::string misfit;           // the same, or main_needed, and what may be used, if it is too much
  std::string text;             // one line for the user
  std::string next;             // what to change, if it does not fit
};

// For a run on CPUs: each rank has its part of the machine's memory, and its own second copy.
void ShareMainMemory(TrainPlanRequest* request);

TrainPlan PlanTraining(const ModelConfig& config, const TrainOptions& options,
                       const TrainPlanRequest& request);

}  // namespace kevin::local
