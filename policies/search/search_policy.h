#pragma once
// A policy without a language model: it recognises what the reference computes and answers with kernels from
// parameterised families, each next schedule chosen from what was measured. Deterministic: the same
// Request.task and Sampling.seed give the same reply. It keeps no state, so it may be called from many
// threads. It reads Request.task only, never the messages, and does not edit Task.start_source.

#include <memory>

#include "policies/policy.h"

namespace kevin {

std::unique_ptr<Policy> MakeSearchPolicy();

}  // namespace kevin
