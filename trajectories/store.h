#pragma once
// START HERE for trajectories: the one way in and out of the database (a SQLite file, schema.sql).
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
// fsync per call, milliseconds beside a turn of seconds.
// Threads: every method may be called from any thread; calls take turns on one connection.
// Processes: any number may write to one file; a writer waits up to 30 s for the others.
// Errors: Error kBroken (disk full, I/O error, file locked for too long: the call had no effect), Error
// kBadRequest (not a database, corrupt, newer version, not writable, unknown or ambiguous id).

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trajectories/figures.h"
#include "trajectories/merge.h"
#include "trajectories/records.h"

namespace kevin {

enum class OpenMode {
  kRead,   // must exist; never written, not even in a read-only folder
  kWrite,  // must exist
  kCreate  // made if missing or empty; its folder must exist
};

class Store {
 public:
  static Store Open(const std::filesystem::path& path, OpenMode mode);
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;
  ~Store();

  const std::filesystem::path& path() const;

  // --- Writing. Ids in the records are ignored; the new id is returned. ---
  std::string BeginRun(const RunRecord& run);
  void FinishRun(const std::string& run);

  // Begins in state "running". The problem's text is stored once per content hash.
  std::string BeginEpisode(const EpisodeRecord& episode, const ProblemRecord& problem);

  // --continue: the episode is "running" again under `run`, and turns_asked is what it has plus `more_turns`.
  // The best kernel found so far stays. Throws kBadRequest while another living process of this machine works
  // on it.
  void ResumeEpisode(const std::string& episode, const std::string& run, int more_turns);

  // All of a turn in one transaction. Returns the id of its evaluation. Throws kBadRequest when the episode
  // already has this turn.
  std::string AppendTurn(const std::string& episode, const TurnRecord& turn);

  // A further evaluation of a turn's candidate (purpose "confirm" or "audit"). Returns its id.
  std::string AppendEvaluation(const std::string& episode, int turn, const EvaluationRecord& evaluation);

  // Replaces state and best_*; adds `seconds`.
  void FinishEpisode(const std::string& episode, const EpisodeEnd& end);

  // `by` overrides the verdicts of `evaluations` and of all that repeat them (cached_from) or were overridden
  // by them; the rows are kept. superseded_by thus always points at the last word.
  void Supersede(const std::vector<std::string>& evaluations, const std::string& by);

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

  // All evaluations of one turn, oldest first (the turn's own, then confirmations and audits), with samples.
  std::vector<EvaluationRecord> LoadEvaluations(const std::string& episode, int turn);
  std::optional<EvaluationRecord> FindEvaluation(const std::string& id);

  // The latest verdict under this key that was really measured (not itself cached), is not superseded and is
  // no confirmation or audit, whose numbers must not be selected on. Without samples.
  std::optional<EvaluationRecord> FindEvaluationByKey(const std::string& key);

  // --- Many rows at once, for reports and attributions (figures.cc) ---
  std::vector<RunFigures> ListRuns();  // oldest first
  // The episodes that these runs began, with their turns; no runs: all. One snapshot, also while others
  // write.
  Figures LoadFigures(const std::vector<std::string>& runs = {});
  // Takes the place of an earlier one of the same scheme name for the same runs. `turns` refer to `episodes`
  // and are ordered by both. Returns the new id.
  std::string SaveAttribution(const AttributionRecord& attribution, const std::vector<std::string>& episodes,
                              const std::vector<TurnAttributionRecord>& turns);

  // What another database has and this one lacks (merge.h). Open `source` for reading first: that says what
  // is wrong with a file that is none of ours.
  MergeResult Import(const std::filesystem::path& source);

  struct Impl;  // store_impl.h; for the store's own sources

 private:
  explicit Store(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kevin
