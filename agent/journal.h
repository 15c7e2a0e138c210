#pragma once
// An episode's turns, kept in three places at once: the store, the output files and memory. Also: which turn
// is the fastest so far, which earlier verdicts are overruled, and how the winner is confirmed.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "env/environment.h"
#include "policies/policy.h"
#include "trajectories/store.h"

namespace kevin {

// The files of an episode: FOLDER/EPISODE/TURN.cpp for every source and best.cpp for the best so far (.cu and
// .ptx for those kinds). A file is written completely or not at all.
class EpisodeOutput {
 public:
  // Creates `folder` if needed. Throws Error(kBadRequest) when it is not writable.
  explicit EpisodeOutput(std::filesystem::path folder);

  // The same, but creates nothing: the nearest folder that exists must be writable.
  static void RequireWritable(const std::filesystem::path& folder);

  void set_episode(const std::string& episode) { episode_ = episode; }

  // Both return the path written. Throw Error(kBroken), for example when the disk is full.
  std::string WriteTurn(int turn, const std::string& kind, const std::string& source) const;
  std::string WriteBest(const std::string& kind, const std::string& source) const;

  // A missing file is no error.
  void Remove(const std::string& path) const;

 private:
  std::string Write(const std::string& name, const std::string& source) const;

  std::filesystem::path folder_;
  std::string episode_;
};

struct Winner {
  int turn = 0;
  Ratio speedup;  // from a confirmation that took no part in the choice
};

// A turn's candidate measured again: its speed-up over eager and, where it was asked for, over another turn's candidate
// in the same pairs.
struct Confirmed {
  Ratio speedup;
  std::optional<Ratio> against;
};

// Measures the candidate of `turn` again, against that of the turn `against` too if there is one; nullopt when it is no
// longer correct.
using ConfirmTurn = std::function<std::optional<Confirmed>(int turn, std::optional<int> against)>;
using RankingFunction = std::function<std::vector<int>()>;  // agent/ranking.h

inline constexpr size_t kMaxConfirmed = 3;

// Chooses the winner of an episode. Turns that are not distinguishable from the leader and may be faster are measured
// again, against the best so far in the same pairs, up to kMaxConfirmed turns with the leader; the faster one is the best.
// Then the best is measured once more: only that gives the speed-up, because what was chosen by a measurement is biased
// upwards by it. A turn that is no longer correct drops out, and `ranking` is asked again. nullopt: no turn was still
// correct. Pure but for its arguments.
std::optional<Winner> ConfirmWinner(const RankingFunction& ranking, const ConfirmTurn& confirm);

// A later evaluation that overrules the turn's own replaces it. The candidate stays, and so does the feedback. False: nothing
// overrules it.
bool TakeCurrentVerdict(Store& store, TurnRecord* turn);

// An episode's turns with current verdicts.
std::vector<TurnRecord> CurrentTurns(Store& store, const std::string& episode);

// The feedback on `turn` after `verdict` has overruled its own.
using FeedbackOn = std::function<std::string(const TurnRecord& turn, const EvaluationRecord& verdict)>;

// Its turns have current verdicts, with the feedback on these; the store keeps the feedback as it was given. Used by one
// thread.
class Journal {
 public:
  // `store` must outlive this.
  Journal(Store& store, EpisodeOutput output, FeedbackOn feedback)
      : store_(store), output_(std::move(output)), feedback_(std::move(feedback)) {}

  void Begin(const EpisodeRecord& episode, const ProblemRecord& problem);
  void Resume(const std::string& episode, const std::string& run, int more_turns);

  const EpisodeRecord& episode() const { return episode_; }
  const std::vector<TurnRecord>& turns() const { return turns_; }
  const TurnRecord& turn(int number) const;  // must exist

  // Writes the turn's source to its file and fills in source_path; does nothing without a source.
  void WriteSource(TurnRecord* turn) const;

  // Stores the turn, with `audit` (may be null) beside it, as the latest one. Its verdict supersedes the
  // evaluations named.
  void Append(TurnRecord turn, const std::vector<std::string>& supersedes, const EvaluationRecord* audit);

  // A further evaluation of a turn's candidate. If it is not correct, it supersedes the turn's verdict.
  void AppendEvaluation(int number, const EvaluationRecord& evaluation);

  // A request that a policy reports; TurnRecord::requests counts them.
  void KeepRequest(int turn, const RequestAttempt& attempt);
  int RequestsOf(int turn) const { return turn == request_turn_ ? requests_ : 0; }

  // In memory only, for hooks: storing the turn takes part of these seconds.
  void SetSeconds(int number, double seconds, double overhead_s);

  const TurnRecord* Leader() const;  // LeaderOf its turns (agent/ranking.h); null: none
  std::vector<int> Ranking() const;

  // With a winner the best file becomes its kernel. Without one the leader's kernel stays there and no
  // speed-up is stored.
  void Finish(EpisodeState state, const std::string& reason, const std::optional<Winner>& winner,
              double seconds);

 private:
  TurnRecord& MutableTurn(int number);
  void Overrule(const std::vector<std::string>& evaluations, const EvaluationRecord& now);
  void WriteLeader();

  Store& store_;
  EpisodeOutput output_;
  FeedbackOn feedback_;
  EpisodeRecord episode_;
  std::vector<TurnRecord> turns_;
  std::optional<int> in_best_file_;  // the turn whose kernel is in the best file
  std::string best_path_;
  int request_turn_ = 0, requests_ = 0;  // requests of the turn in progress
  int open_attempt_ = 0;                 // the store's number of the latest request
};

}  // namespace kevin
