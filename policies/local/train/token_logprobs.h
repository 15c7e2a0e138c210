#pragma once
// Log-probabilities of the completions of samples. The logits of all tokens never exist at once: with a
// vocabulary of 152k those of 16k positions would take 10 GB. The head runs on some rows at a time, and again
// in the backward pass.

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <vector>

#include "policies/local/model/language_model.h"
#include "policies/local/train/batch.h"

namespace kevin::local {

struct TokenLogprobs {
  at::Tensor logprobs;  // [n] float32
  at::Tensor entropy;   // [n] float32, of the same distributions, nats; undefined unless asked for
};

// Of target i after hidden row i at temperature i: log softmax(head(hidden) / temperature)[target].
//   hidden        [n, width]; targets [n] int64; temperatures [n] float32
//   head          rows to logits [rows, vocabulary]; the gradients of its parameters are added directly to
//                 .grad whenever `hidden` needs one
//   rows          rows at a time
// Without gradients, or if `hidden` needs none, the result has none.
TokenLogprobs LogprobsOf(const at::Tensor& hidden, const std::function<at::Tensor(const at::Tensor&)>& head,
                         const at::Tensor& targets, const at::Tensor& temperatures, int64_t rows,
                         bool with_entropy);

// Samples laid end to end, without the last token of each, which predicts nothing.
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

// Of all completion tokens of `packed`, with at most `logits_rows` rows of logits at once.
TokenLogprobs CompletionLogprobs(LanguageModel& model, const Packed& packed, int64_t logits_rows,
                                 bool with_entropy);

}  // namespace kevin::local
