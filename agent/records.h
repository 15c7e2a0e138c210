#pragma once
// The environment's and the policy's values as records of the store, and back.

#include "env/environment.h"
#include "policies/policy.h"
#include "trajectories/records.h"

namespace kevin {

ProblemRecord ToRecord(const Problem& problem);

// `purpose` is "turn", "start", "confirm", "audit" or "bench".
EvaluationRecord ToRecord(const Evaluation& evaluation, const Candidate& candidate, const Problem& problem,
                          const std::string& purpose);

// A stored verdict as an evaluation that repeats it: cached_from is its id; no samples, no seeds, no seconds,
// because nothing was measured. The message of a failure is its reason line, but for a compiler's log.
Evaluation FromRecord(const EvaluationRecord& record);

// The ratio to `rival`, against which `evaluation` was timed in the same pairs; nullopt where it was not measured. The
// evaluation's against_start is afterwards that to the user's own kernel: of turn 0 the same ratio, of another rival
// the product with that rival's own, which nobody measured directly.
std::optional<Ratio> TakeComparison(const TurnRecord& rival, Evaluation* evaluation);

// A request of `turn`; the store numbers its attempts.
RequestRecord ToRecord(const RequestAttempt& attempt, int turn);

// The reply's part of a turn.
void FillFromCompletion(const Completion& completion, const Sampling& sampling, TurnRecord* turn);

}  // namespace kevin
