#pragma once
// START HERE for the search policy, which needs no language model. It takes the graph of the reference that torch gives
// (graph.h), lowers it to stages (lower.h, program.h), joins stages, and writes them as one kernel (write.h) whose knobs
// it sets from earlier measurements (choose.h).
//
// It reads Request.task only, never the messages, and does not edit Task.start_source. Deterministic: equal
// Request.task and Sampling.seed give equal replies. It keeps no state and may be called from any thread.
//
// Complete throws NothingLeft once each of its texts was an attempt, and Error(kBadRequest) for a problem with an operation
// that it cannot write; WhyNot says so beforehand.

#include <memory>

#include "policies/policy.h"

namespace kevin {

std::unique_ptr<Policy> MakeSearchPolicy();

}  // namespace kevin
