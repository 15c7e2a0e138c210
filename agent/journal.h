#pragma once
// An episode's memory: the turns so far, kept at once in the store, in the output files and here. Knows which
// turn leads and which earlier verdicts no longer hold. Used by one thread.

#include <optional>
#include <string>
#include <vector>

#include "agent/output.h"
#include "agent/winner.h"
#include "policies/policy.h"
#include "trajectories/store.h"

namespace kevin {

// An episode's turns with today's verdicts: where a later evaluation overrides a turn's own, it stands there.
std::vector<TurnRecord> CurrentTurns(Store& store, const std::string& episode);

class Journal {
 public:
  // `store` must outlive this.
  Journal(Store& store, EpisodeOutput output) : store_(store), output_(std::move(output)) {}

  void Begin(const EpisodeRecord& episode, const ProblemRecord& problem);
  void Resume(const std::string& episode, const std::string& run, int more_turns);

  const EpisodeRecord& episode() const { return episode_; }
  const std::vector<TurnRecord>& turns() const { return turns_; }
  const TurnRecord& turn(int number) const;  // must be there

  // Writes the source, if there is one, to its file; fills its source_path.
  void WriteSource(TurnRecord* turn) const;

  // Stores the turn, with `audit` (may be null) beside it, and makes it the latest. Its verdict supersedes
  // the evaluations named.
  void Append(TurnRecord turn, const std::vector<std::string>& supersedes, const EvaluationRecord* audit);

  // A further evaluation of a turn's candidate. One that is not correct supersedes the turn's verdict, and
  // the turn from then on tells `feedback`.
  void AppendEvaluation(int number, const EvaluationRecord& evaluation, const std::string& feedback);

  // A request that a policy reports; TurnRecord::requests counts them.
  void KeepRequest(int turn, const RequestAttempt& attempt);
  int RequestsOf(int turn) const { return turn == request_turn_ ? requests_ : 0; }

  // Seconds are known in full only when the turn is stored; for whoever watches.
  void SetSeconds(int number, double seconds, double overhead_s);

  std::vector<CorrectTurn> CorrectTurns() const;  // the turns that are right
  const TurnRecord* Leader() const;               // the fastest of them by its own measurement; null: none

  // The best file becomes the winner's kernel. Without a winner the leader's stays and no speed-up is
  // claimed.
  void Finish(EpisodeState state, const std::string& reason, const std::optional<Winner>& winner,
              double seconds);

 private:
  TurnRecord& MutableTurn(int number);
  void MarkWrong(const std::vector<std::string>& evaluations, const EvaluationRecord& now);
  void WriteLeader();

  Store& store_;
  EpisodeOutput output_;
  EpisodeRecord episode_;
  std::vector<TurnRecord> turns_;
  std::optional<int> in_best_file_;  // the turn whose kernel is in the best file
  std::string best_path_;
  int request_turn_ = 0, requests_ = 0;  // how many of the turn that is under way
  int open_attempt_ = 0;                 // the store's number of the latest
};

}  // namespace kevin
