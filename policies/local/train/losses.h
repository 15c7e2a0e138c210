#pragma once
// The loss of a step: every algorithm is a setting of this one function (options.h). Over the trained tokens
// t of the samples i, with the current log-probability l_t, its value o_t before the step, the sampler's s_t,
// the reference's f_t, the entropy H_t and the advantage A_i:
//
//   ratio          r_t = exp(l_t - o_t); sequence-clip: r_i = exp(mean over the sequence of l_t - o_t)
//   clip           p_t = -min(r A, c A), c = clamp(r, 1 - clip_low, 1 + clip_high); with a dual clip d and
//                  A < 0 at most -d A
//   cispo          p_t = -min(r, 1 + clip_high) A l_t, the ratio held constant
//   reinforce      p_t = -A l_t
//   cross-entropy  p_t = -l_t
//   correction     p_t is multiplied by a constant weight from w_t = exp(o_t - s_t) (options.h, Correction)
//   kl             with x = f_t - l_t: k1 = -x, k2 = x^2 / 2, k3 = exp(x) - x - 1
//   loss           sum over t of n_t (p_t + kl_weight kl_t - entropy_weight H_t)
//   n_t            token-mean 1 / T, sequence-mean 1 / (B T_i), sequence-sum 1 / B,
//                  constant 1 / (B constant_tokens), B sequences and T trained tokens in the whole update
//   preference     instead of all that, for each pair, with d the sum of l_t - f_t over a sequence:
//                  -log sigmoid(beta (d of the chosen - d of the rejected)); mean over the pairs
//
// Differences of log-probabilities are clamped to +-20 before they are exponentiated. B and T are those of
// the whole update, so losses and gradients of its parts sum to those of the whole.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "policies/local/train/options.h"

namespace kevin::local {

// The trained tokens of whole sequences, laid end to end: N tokens, float32 unless said otherwise.
struct TokenValues {
  at::Tensor logprobs;   // [N], of the current model; receives gradients
  at::Tensor entropy;    // [N], or undefined
  at::Tensor old;        // [N]; undefined: equal to logprobs
  at::Tensor sampler;    // [N], or undefined: no correction
  at::Tensor reference;  // [N], or undefined
  at::Tensor advantage;  // [N]
  at::Tensor sequence;   // [N] int64, from 0, ascending
  int64_t sequences = 0;
};

// Totals of the whole update.
struct LossScale {
  double sequences = 0, tokens = 0;
};

// Sums over tokens (over pairs for preferences); the sums of parts add up. Separate from the loss.
struct LossSums {
  double tokens = 0, loss = 0, clip_low = 0, clip_high = 0, kl = 0, shift = 0, entropy = 0;
  double weights = 0, dropped = 0;
  double pairs = 0, preferred = 0, margins = 0;
  void Add(const LossSums& other);
};

struct LossOutput {
  at::Tensor loss;  // scalar
  LossSums sums;
};

LossOutput Loss(const LossOptions& options, const TokenValues& values, const LossScale& scale);

}  // namespace kevin::local
