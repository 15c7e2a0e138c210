#pragma once
// The result of an evaluation as the text that the policy reads in its next prompt: enough to act on and
// nothing else. gpu_feedback.h adds what is specific to GPUs. Deterministic; any thread.

#include <optional>
#include <string>
#include <vector>

#include "env/environment.h"

namespace kevin {

struct FeedbackContext {
  std::string source;                     // the candidate; compiler errors quote its lines
  const SizedProblem* problem = nullptr;  // not owned; null: no remark on what limits the operation
  int threads = 1;
  std::string kind =
      "cpp";  // of the candidate; GPU kinds get the device's peaks and their kernels' resources
  std::vector<KnobTrial> trials = {};  // of the candidate's knobs
  // To the turn that was the best so far, in the same pairs.
  std::optional<Ratio> against_best = {};
  int against_best_turn = 0;
  std::string advice = {}, unread = {};  // of a reply that could not be read (ParsedReply)
  bool is_start = false;                 // the kernel of --from
};

// Markdown without a line end at the end.
std::string Feedback(const Evaluation& evaluation, const FeedbackContext& context);

// What limits the operation, by flops over bytes of its usual counts. The thresholds bracket the balance of
// CPUs and GPUs of the last decade, 5 to 20 flop per byte of main memory traffic in fp32; between them the
// answer is kUnclear.
enum class Bound { kMemory, kCompute, kUnclear };
inline constexpr double kMemoryBoundBelow = 4.0;  // flop per byte
inline constexpr double kComputeBoundAbove = 30.0;
Bound RooflineBound(const SizedProblem& problem);

// "1.32x (1.28x to 1.36x)"
std::string RatioText(double value, double low, double high);

}  // namespace kevin
