#pragma once
// `kevin db rejudge`: evaluates again the candidates whose verdicts are doubtful (trajectories/doubtful_verdicts.h: old
// rules, or a time beside another process), and lets the new verdicts supersede the old ones. The old rows stay.
//
// Order: the fastest turn of each episode, then the other measured turns, then (if asked) the failures; the faster the
// earlier. Equal questions are judged once, for all turns that asked them. Where an episode's best_speedup came from an
// doubtful confirmation, its best turn is confirmed anew (journal.h: ConfirmWinner) once the verdict on it is new.
//
// Each verdict is one transaction. What was done is known from the database alone: a further start does the rest,
// also after kill -9.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "env/environment.h"
#include "policies/policy.h"
#include "trajectories/store.h"

namespace kevin {

struct RejudgeRequest {
  std::vector<std::string> problems;  // ids, or what they begin with where it ends in "/"; empty: all
  bool failures = false;              // also what was not measured
  int64_t limit = 0;                  // the most candidates; 0: all
};

// The doubtful verdicts of a database, as this machine and the request divide them.
struct RejudgePlan {
  std::vector<DoubtfulVerdict> verdicts;       // to judge, in order
  int64_t left = 0;                            // beyond the limit
  int64_t failures = 0;                        // not asked for
  std::map<std::string, int64_t> elsewhere;    // candidates by the device that they belong to
  std::map<std::string, std::string> missing;  // problem to reason
  int64_t without_problem = 0;                 // candidates of these
};

// One candidate that was judged again.
struct Rejudgement {
  DoubtfulVerdict before;
  EvaluationRecord now;
  int64_t number = 0;        // from 1
  bool contradicts = false;  // it was measured before, and is not now
  double total_s = 0;
};

struct RejudgeHooks {
  std::function<void(const RejudgePlan&)> on_plan;
  std::function<void(const DoubtfulVerdict&, const std::string& phase)> on_phase;
  std::function<void(const Rejudgement&)> on_verdict;                              // stored
  std::function<void(const DoubtfulVerdict&, const std::string& error)> on_error;  // stays as it was
};

struct RejudgeEnd {
  int64_t judged = 0, contradictions = 0;
  int64_t errors = 0;        // candidates that stay for the next start
  int64_t confirmed = 0;     // episodes whose best kernel has a new confirmation
  int64_t without_best = 0;  // episodes that have none any more
  bool is_interrupted = false;
  std::string failure;  // the last of kMostErrorsInARow errors, which ended it; else empty
};

// The problem of a stored verdict; nullopt with the reason where it cannot be judged here.
using ProblemFinder = std::function<std::optional<Problem>(const std::string& id, const std::string& hash,
                                                           std::string* why_not)>;

inline constexpr int kMostErrorsInARow = 3;

// `drain` ends it after the candidate in progress, `stop` at once; either may be null. Every hook may be empty. An
// Error of the environment voids one verdict, kMostErrorsInARow in a row end it. Throws what the store throws.
RejudgeEnd RunRejudge(Store& store, Environment& environment, const ProblemFinder& find,
                      const RejudgeRequest& request, const RejudgeHooks& hooks, const CancelToken* drain,
                      const CancelToken* stop);

}  // namespace kevin
