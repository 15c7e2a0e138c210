#pragma once
// The implementation of Store, shared by the sources that write SQL.

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trajectories/database.h"
#include "trajectories/group_commit.h"
#include "trajectories/store.h"

namespace kevin {

// A row of table blobs, made ready outside of a write.
struct EncodedBlob {
  std::string hash, codec;
  int64_t size = 0;
  std::string body;
};
EncodedBlob EncodeText(const std::string& text);
std::optional<EncodedBlob> EncodeArray(const std::string& bytes);  // nullopt for an empty array

struct Store::Impl {
  // `file` is the device and inode of a SQLite file; (0, 0): there is no file to watch.
  Impl(Database opened, std::pair<uint64_t, uint64_t> file);

  // Runs `work` in a transaction, together with what other threads write at the time (group_commit.h), and
  // returns once it is durable. Reading goes on under `mutex` alone.
  void Write(const std::function<void()>& work) { group_commit.Run(work); }

  // A transaction of its own; the caller holds `mutex`. Also checks that the file is still the one at its
  // path: writing to a deleted one would lose everything.
  Transaction BeginWrite();

  // Throws kBadRequest unless there is an episode with exactly this id.
  void RequireEpisode(const std::string& id);

  std::string LastRun(const std::string& episode);  // which must exist

  // Within a write.
  void InsertRun(const std::string& id, const RunRecord& run);
  void PutProblem(const ProblemRecord& problem);

  // Within a write: the item's episode has begun. Throws LeaseLost.
  void GiveEpisode(const Lease& lease, const std::string& episode);

  // Throws kBadRequest while another living process of this machine works on the episode.
  void RequireNobodyElse(const std::string& episode);

  bool IsHeld(const std::string& episode);

  // Within a write. Throws LeaseLost when this store holds `episode` by a lease and somebody else has its
  // item by now. Adds to what the item has used; a turn resets its faults and kills.
  struct Used {
    int turns = 0;
    int64_t prompt_tokens = 0, completion_tokens = 0;
    double device_s = 0;
  };
  void RequireLease(const std::string& episode, const Used& used);

  // Within a write. Stores the bytes unless they are there already.
  void Put(const EncodedBlob& blob);
  std::string GetBlob(const std::string& hash);  // "" for ""

  // Within a write. The database's clock: that of the server where many machines share one. All writes of a
  // transaction are of one moment.
  std::string Now();

  std::mutex mutex;
  Database database;
  std::pair<uint64_t, uint64_t> file_identity;  // device and inode
  std::mutex held_mutex;
  std::map<std::string, Lease> held;  // by episode

 private:
  void CommitTogether(const std::vector<PendingWrite*>& writes);
  void CommitOnce(const std::vector<PendingWrite*>& writes);
  // All of them in one batch of statements. False: this database has none, or something in it is not as it
  // should be; then nothing has happened.
  bool CommitBatch(const std::vector<PendingWrite*>& writes);
  void CommitApart(const std::vector<PendingWrite*>& writes);
  void RunApart(PendingWrite* write);

  // Blobs that are in the database, as far as this store knows: nothing deletes one that a turn refers to.
  std::set<std::string> stored_blobs_;
  std::vector<std::string> new_blobs_;  // put by the transaction that is under way
  std::optional<std::string> now_;      // of that transaction

  GroupCommit group_commit;
};

// Within a write: the evaluation with its candidate, samples and baseline. Returns its id.
std::string InsertEvaluation(Database& database, const std::string& episode, int turn,
                             const EvaluationRecord& e);

// Within a write: the evaluations named, what repeats them and what they superseded are now superseded `by` another one.
void MarkSuperseded(Database& database, const std::vector<std::string>& evaluations, const std::string& by);

// The seconds for which it held the device; none for a repeated verdict.
double DeviceSeconds(const EvaluationRecord& evaluation);

// Those of a turn that fit `more`, a condition that begins with AND or is empty; oldest first, without samples.
std::vector<EvaluationRecord> ReadEvaluations(Database& database, const std::string& episode, int turn,
                                              const std::string& more);
std::vector<Sample> ReadSamples(Database& database, const std::string& evaluation);

// "INSERT INTO table(a, b) VALUES (?, ?)" for a list of columns; `verb` "INSERT OR IGNORE" leaves a row that
// is there already as it is.
inline std::string InsertSql(std::string_view verb, std::string_view table, std::string_view columns) {
  std::string marks = "?";
  for (auto n = std::count(columns.begin(), columns.end(), ','); n > 0; --n) marks += ", ?";
  std::string sql("INSERT INTO ");
  sql.append(table).append("(").append(columns).append(") VALUES (").append(marks).append(")");
  if (verb == "INSERT OR IGNORE") sql += " ON CONFLICT DO NOTHING";
  return sql;
}

// Reads the columns of the current row from left to right.
class RowReader {
 public:
  explicit RowReader(const Statement& statement) : statement_(statement) {}
  std::string Text() { return statement_.Text(column_++); }
  int64_t Integer() { return statement_.Integer(column_++); }
  int Int() { return static_cast<int>(Integer()); }
  bool Flag() { return Integer() != 0; }
  double Real() { return statement_.Real(column_++); }
  std::optional<double> OptionalReal() { return statement_.OptionalReal(column_++); }
  std::optional<int64_t> OptionalInteger() { return statement_.OptionalInteger(column_++); }
  std::optional<int> OptionalInt() {
    const auto value = OptionalInteger();
    return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
  }

 private:
  const Statement& statement_;
  int column_ = 0;
};

// The columns size, inputs, precision; tf32 stands beside them only in `evaluations`.
inline void ReadWorkload(RowReader& row, Workload* workload) {
  workload->size = row.Text(), workload->inputs = row.Text(), workload->precision = row.Text();
}

inline std::optional<std::string> NullIfEmpty(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(text);
}

// Text from a model or a compiler may be no valid UTF-8; JSON must be.
inline std::string DumpJson(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::pair<uint64_t, uint64_t> FileIdentity(const std::filesystem::path& path);  // device and inode

std::string UtcNow();                                           // "2026-11-21T09:40:12.345Z"
std::string UtcAfter(const std::string& time, double seconds);  // the same form, later

}  // namespace kevin
