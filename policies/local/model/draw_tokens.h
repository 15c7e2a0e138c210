#pragma once
// Drawing tokens from the logits of a step, on the device they are on.

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "policies/local/generate/model_runner.h"

namespace kevin::local {

struct DrawRequest {
  TokenSampling sampling;
  int position = 0;  // of the token to be drawn
  const LogitsProcessor* processor = nullptr;
};

// `logits` is [requests, vocabulary]. The rule is that of generate/sampler.h, which does it on a CPU.
std::vector<SampledToken> DrawTokens(const at::Tensor& logits, std::span<const DrawRequest> requests);

}  // namespace kevin::local
