#pragma once
// What became of a candidate -> what the policy is told about it: enough to act on, nothing else.
// Deterministic; safe from any thread.

#include <string>

#include "env/environment.h"

namespace kevin {

struct FeedbackContext {
  std::string source;                     // what was judged; compiler errors quote its lines
  const SizedProblem* problem = nullptr;  // not owned; null: no roofline remarks
  int threads = 1;
  std::string kind = "cpp";  // of the candidate; for a GPU's kinds the device's ceilings and kernels are told
};

// Markdown, no line end at the end. Shows at most three compiler errors, each with its line of the source.
std::string Feedback(const Evaluation& evaluation, const FeedbackContext& context);

// What limits the operation by its usual counts: flops over bytes against the balance of CPUs and GPUs of the
// last decade (5 to 20 flop per byte of main memory traffic in fp32). In between it is kUnclear.
enum class Bound { kMemory, kCompute, kUnclear };
inline constexpr double kMemoryBoundBelow = 4.0;  // flop per byte
inline constexpr double kComputeBoundAbove = 30.0;
Bound RooflineBound(const SizedProblem& problem);

// "1.32x (1.28x to 1.36x)"
std::string RatioText(double value, double low, double high);

}  // namespace kevin
