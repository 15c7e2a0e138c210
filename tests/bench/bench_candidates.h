#pragma once
// The kernels that bench_gpu judges, as texts of kind `cuda`.

#include <string>

#include "env/problem/problem.h"

namespace kevin {

// What the search policy writes first for the problem at size full, on an H200.
std::string SearchKernel(const Problem& problem);

// The same kernel as another text and another cubin: a comment, and the kernels' names end in `mark`, which
// must be a part of an identifier. Throws Error(kBroken) when the text has no kernel.
std::string Variant(const std::string& source, const std::string& mark);

// Writes zeros to every output of the problem at size full: wrong.
std::string ZeroKernel(const Problem& problem);
// `source` with an error of syntax in a device function above it.
std::string BrokenKernel(const std::string& source);

// ReLU of `elements` (a multiple of 4) float32 numbers, at size full.
Problem ReluProblem(int64_t elements);

// For ReluProblem: a float4 a thread. Every thread adds zero `steps` times, each addition waiting for the one
// before, between its load and its store, and computes the same; 0 steps: without any of it. How much longer
// the kernel lasts depends on how much of it memory hides (CalibrateDelay).
std::string DelayedRelu(int steps);

// For ReluProblem: as eager's own vectorised kernel goes about it, 4 independent float4 a thread, 128 threads
// a block.
std::string EagerFormRelu();

}  // namespace kevin
