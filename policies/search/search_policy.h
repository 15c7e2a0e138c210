#pragma once
// START HERE for the search policy, which needs no language model. It reads the reference (torchscript.h),
// lowers it to a graph of operations (lower.h, term.h), finds a family of kernels that can write the graph
// (forms.h, family.h), and answers with a kernel whose setting of the family's knobs is chosen from earlier
// measurements (choose.cc).
//
// It reads Request.task only, never the messages, and does not edit Task.start_source. Deterministic: equal
// Request.task and Sampling.seed give equal replies. It keeps no state and may be called from any thread.
//
// Complete throws Error(kBadRequest) for a problem that no family can write; WhyNot says so beforehand.

#include <memory>

#include "policies/policy.h"

namespace kevin {

std::unique_ptr<Policy> MakeSearchPolicy();

}  // namespace kevin
