#pragma once
// Samples through a model: log-probabilities of their completions.

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "policies/local/model/language_model.h"
#include "policies/local/train/batch.h"
#include "policies/local/train/token_logprobs.h"

namespace kevin::local {

// Samples laid end to end. The last token of each has nothing to predict and is left off.
struct Packed {
  PackedTokens tokens;
  at::Tensor rows;          // [N] int64: the positions that predict a completion's tokens
  at::Tensor targets;       // [N] int64: those tokens
  at::Tensor temperatures;  // [N] float
  at::Tensor advantage;     // [N] float
  at::Tensor sequence;      // [N] int64
  at::Tensor sampler;       // [N] float; undefined unless every sample has the sampler's log-probabilities
  int64_t sequences = 0;
};

Packed PackSamples(std::span<const Sample* const> samples, at::Device device);

TokenLogprobs CompletionLogprobs(LanguageModel& model, const Packed& packed, int64_t logits_rows,
                                 bool with_entropy);

}  // namespace kevin::local
