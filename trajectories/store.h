#pragma once
// START HERE for trajectories: the one way in and out of the database (schema.sql): a SQLite file, or
// PostgreSQL where the name is an address (postgresql://user@host/database).
//
//   Store store = Store::Open("kevin.db", OpenMode::kCreate);
//   std::string run = store.BeginRun({...});
//   std::string episode = store.BeginEpisode({.run = run, ...}, problem);
//   store.AppendTurn(episode, turn);            // one transaction: turn, candidate, evaluation, samples
//   store.FinishEpisode(episode, {...});
//   store.FinishRun(run);
//
// Durability: WAL with synchronous=FULL. When a call returns, what it wrote survives kill -9 and a power cut;
// a kill at any moment loses at most the turn in flight, and the file opens without repair. The price is one
// fsync per call, shared by the threads that write at the time (group_commit.h).
// Threads: every method may be called from any thread; calls take turns on one connection.
// Processes: any number may write to one database; a writer waits up to 30 s for the others.
// Errors: StoreBroken (disk full, I/O error, file locked for too long: the call had no effect), Error
// kBadRequest (not a database, corrupt, newer version, not writable, unknown or ambiguous id).

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "env/error.h"
#include "trajectories/doubtful_verdicts.h"
#include "trajectories/figures.h"
#include "trajectories/records.h"

namespace kevin {

enum class OpenMode {
  kRead,   // must exist; never written, not even in a read-only folder
  kWrite,  // must exist
  kCreate  // made if missing or empty; its folder must exist
};

// A write that failed because of the database, not because of its contents: a full disk, a lost
// connection, a lock held for too long.
class StoreBroken : public Error {
 public:
  explicit StoreBroken(const Error& why) : Error(why.code(), why.what(), why.next_step()) {}
};

// A write to an episode whose work item somebody else has taken over. It had no effect.
class LeaseLost : public Error {
 public:
  explicit LeaseLost(const std::string& episode);
};

// Of Import.
struct MergeResult {
  int64_t runs = 0, episodes = 0, turns = 0, evaluations = 0;  // that are new
  int64_t continued = 0;  // episodes that were here and have later turns or a later end there
  // Episodes that went on differently in both databases; they stay as they are here.
  std::vector<std::string> conflicts;
};

class Store {
 public:
  static Store Open(const std::filesystem::path& path, OpenMode mode);
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;
  ~Store();

  const std::filesystem::path& path() const;  // the file, or the address without its password

  // --- Writing. Ids in the records are ignored; the new id is returned. ---
  std::string BeginRun(const RunRecord& run);
  void FinishRun(const std::string& run);

  // Begins in state "running". The problem's text is stored once per content hash.
  std::string BeginEpisode(const EpisodeRecord& episode, const ProblemRecord& problem);

  // --continue: the episode is "running" again under `run`, and turns_asked is what it has plus `more_turns`.
  // The best kernel found so far stays. Throws kBadRequest while another living process of this machine works
  // on it.
  void ResumeEpisode(const std::string& episode, const std::string& run, int more_turns);

  // All of a turn in one transaction: with it `audit`, unless null, and what its evaluation supersedes (see
  // Supersede). Returns the id of its evaluation. Throws kBadRequest when the episode already has this turn.
  std::string AppendTurn(const std::string& episode, const TurnRecord& turn,
                         const std::vector<std::string>& supersedes = {},
                         const EvaluationRecord* audit = nullptr);

  // A further evaluation of a turn's candidate (purpose "confirm" or "audit"). Returns its id.
  std::string AppendEvaluation(const std::string& episode, int turn, const EvaluationRecord& evaluation,
                               const std::vector<std::string>& supersedes = {});

  // A verdict by newer rules (purpose "rejudge") on the question that `key` was of; it supersedes all evaluations under
  // that key. What repeats one of them under another key, because its machine code was taken for the same, stays as it
  // is: it is another text and has to be judged by itself.
  std::string AppendRejudgement(const std::string& episode, int turn, const EvaluationRecord& evaluation,
                                const std::string& key);

  // A request to a server, stored before it is sent; returns its attempt number. EndRequest with that number
  // fills in how it ended.
  int BeginRequest(const std::string& episode, const RequestRecord& request);
  void EndRequest(const std::string& episode, const RequestRecord& request);

  // Replaces state and best_*; adds `seconds`.
  void FinishEpisode(const std::string& episode, const EpisodeEnd& end);

  // `by` overrides the verdicts of `evaluations` and of all that repeat them (cached_from) or were overridden
  // by them; the rows are kept. superseded_by thus always points at the last word, also in a repetition that
  // is stored after what it repeats was overridden.
  void Supersede(const std::vector<std::string>& evaluations, const std::string& by);

  // From now on writes to the episode need the lease: they throw LeaseLost once somebody else has the work
  // item. BeginEpisode does this for an episode that it begins under a lease. LetGo ends it.
  void Hold(const std::string& episode, const Lease& lease);
  void LetGo(const std::string& episode);

  // --- Reading ---
  // `prefix` is an episode id or a unique beginning of one, in either case. Unknown or ambiguous: kBadRequest
  // that names the nearest ones. An episode whose process died shows as interrupted.
  EpisodeRecord FindEpisode(const std::string& prefix);
  std::vector<EpisodeRecord> ListEpisodes(int limit);  // latest first
  std::optional<RunRecord> FindRun(const std::string& id);
  std::optional<ProblemRecord> FindProblem(const std::string& content_hash);

  // In order of turn, 0 first if there is one; with candidates' sources. Samples are loaded by LoadTurn only.
  std::vector<TurnRecord> LoadTurns(const std::string& episode);
  std::optional<TurnRecord> LoadTurn(const std::string& episode, int turn);

  std::vector<RequestRecord> LoadRequests(const std::string& episode, int turn);  // in order of attempt

  // All evaluations of one turn, oldest first (the turn's own, then confirmations and audits), with samples.
  std::vector<EvaluationRecord> LoadEvaluations(const std::string& episode, int turn);
  std::optional<EvaluationRecord> FindEvaluation(const std::string& id);

  // The latest verdict under this key that was really measured (not itself cached) and is not superseded; of confirmations and
  // audits only what was wrong, since their numbers must not be selected on. Without samples.
  std::optional<EvaluationRecord> FindEvaluationByKey(const std::string& key);

  // The same for a machine key, which two texts may share.
  std::optional<EvaluationRecord> FindEvaluationByMachineKey(const std::string& machine_key);

  // All verdicts under this key that nothing overrides yet, of any purpose; ids, latest first.
  std::vector<std::string> VerdictsUnderKey(const std::string& key);

  // --- Verdicts under older rules (doubtful_verdicts.h) ---
  // Those that stand and are older than kSecurityRulesVersion, each key once: the fastest turns of the episodes first,
  // then the other measured ones, each by speed-up from the largest down, then the failures. Reads every evaluation.
  std::vector<DoubtfulVerdict> DoubtfulVerdicts();
  // Episodes that ended with a best_speedup and have no confirmation of it under newer rules; ids, in order.
  std::vector<std::string> EpisodesToConfirm();

  // --- Many rows at once, for reports and attributions (figures.cc) ---
  std::vector<RunFigures> ListRuns();  // oldest first
  // The episodes that these runs began, with their turns; no runs: all. One snapshot, also while others
  // write.
  Figures LoadFigures(const std::vector<std::string>& runs = {});
  // Takes the place of an earlier one of the same scheme name for the same runs. `turns` refer to `episodes`
  // and are ordered by both. Returns the new id.
  std::string SaveAttribution(const AttributionRecord& attribution, const std::vector<std::string>& episodes,
                              const std::vector<TurnAttributionRecord>& turns);

  // Copies from `source` (a database of this format or an older one; never written) what this one lacks, in one
  // transaction: runs, problems, episodes, turns, candidates, evaluations, samples and what belongs to them. Ids are
  // ULIDs and contents are named by hash: nothing is doubled, and importing again changes nothing. Queued work and
  // attributions stay behind. Throws Error(kBadRequest) when rows of `source` refer to rows that it lacks. Open
  // `source` for reading first: that reports a file that is not a database of Kevin's.
  MergeResult Import(const std::filesystem::path& source);

  struct Impl;  // store_impl.h; for the sources of this folder
  Impl& impl() { return *impl_; }

 private:
  explicit Store(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kevin
