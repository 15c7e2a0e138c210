#pragma once
// The result of an evaluation as the text that the policy reads in its next prompt: enough to act on and
// nothing else. gpu_feedback.h adds what is specific to GPUs. Deterministic; any thread.

#include <optional>
#include <string>
#include <vector>

#include "env/environment.h"
#include "env/verdict/words.h"

namespace kevin {

struct FeedbackContext {
  std::string source;                     // the candidate; compiler errors quote its lines
  const SizedProblem* problem = nullptr;  // not owned; may be null
  int threads = 1;
  std::string kind =
      "cpp";  // of the candidate; GPU kinds get the device's peaks and their kernels' resources
  std::vector<KnobTrial> trials = {};    // of the candidate's knobs
  const Diagnosis* diagnosis = nullptr;  // not owned; null: none was made
  // To the turn that was the best so far, in the same pairs.
  std::optional<Ratio> against_best = {};
  int against_best_turn = 0;
  std::string advice = {}, unread = {};  // of a reply that could not be read (ParsedReply)
  std::string note = {};                 // of a reply that was read (ParsedReply)
  bool is_start = false;                 // the kernel of --from
  double cache_bytes = 0;                // of the largest cache of the CPU that ran it; 0: unknown
};

// Markdown without a line end at the end.
std::string Feedback(const Evaluation& evaluation, const FeedbackContext& context);

// The reason of an outcome without options of the command line, which a policy does not choose.
std::string ReasonForPolicies(std::string reason);

}  // namespace kevin
