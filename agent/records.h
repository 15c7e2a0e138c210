#pragma once
// The environment's values as the store keeps them, and back. The one place where the two meet.

#include "env/environment.h"
#include "policies/policy.h"
#include "trajectories/records.h"

namespace kevin {

ProblemRecord ToRecord(const Problem& problem);

// `purpose` is "turn", "start", "confirm", "audit" or "bench".
EvaluationRecord ToRecord(const Evaluation& evaluation, const Candidate& candidate, const Problem& problem,
                          const std::string& purpose);

// A stored verdict as an evaluation that repeats it: cached_from is its id; no samples, no seeds, no seconds,
// because nothing was measured. What the record lacks (a limit's exact seconds, a compiler's full log) is its
// reason line.
Evaluation FromRecord(const EvaluationRecord& record);

// An outcome as the columns of the verdict have it, and back: `outcome`, `reason` and all that is measured.
void FillOutcome(const Outcome& outcome, EvaluationRecord* record);
Outcome OutcomeFrom(const EvaluationRecord& record);

// A request of `turn`; the store numbers its attempts.
RequestRecord ToRecord(const RequestAttempt& attempt, int turn);

// The reply's part of a turn.
void FillFromCompletion(const Completion& completion, const Sampling& sampling, TurnRecord* turn);

}  // namespace kevin
