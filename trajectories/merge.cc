#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "env/error.h"
#include "trajectories/catalog.h"
#include "trajectories/engine.h"
#include "trajectories/formats.h"
#include "trajectories/store.h"
#include "trajectories/store_impl.h"

namespace kevin {
namespace {

constexpr int kMergeTimeoutMs = 30'000;
constexpr int kMostMergeRepeats = 10;  // where others write to the same server

constexpr const char* kOutcomeColumns[] = {
    "last_run",         "turns_asked",       "state",     "state_reason", "best_turn",  "best_speedup",
    "best_speedup_low", "best_speedup_high", "best_path", "seconds",      "finished_at"};

// Columns of an evaluation that refer to others of the same table, perhaps to later rows: set when all are
// in.
bool IsLink(const std::string& table, const std::string& column) {
  return table == "evaluations" && (column == "cached_from" || column == "superseded_by");
}

class Merger {
 public:
  Merger(Database& into, Database& source) : into_(into), source_(source) {}

  MergeResult Run() {
    FindDiverged();
    ReadEnds();
    result_.conflicts.assign(diverged_.begin(), diverged_.end());
    for (const std::string& table : SchemaTables()) {
      if (table == "work_items" || table == "attributions" || table == "turn_attributions") continue;
      const int64_t added = CopyTable(table);
      if (table == "runs") result_.runs = added;
      if (table == "episodes") result_.episodes = added;
      if (table == "turns") result_.turns = added;
      if (table == "evaluations") result_.evaluations = added;
    }
    SetLinks();
    if (FormatOf(source_) < kSchemaVersion) MoveOutcomeFields(into_);
    UpdateEpisodes();
    UpdateRuns();
    return result_;
  }

 private:
  // Both have the episode, and a turn of the same number that was made at another time.
  void FindDiverged() {
    const std::string turns = "SELECT episode, turn, created_at FROM turns ORDER BY episode, turn";
    RowStream ours(into_, turns), theirs(source_, turns);
    bool more = ours.Next() && theirs.Next();
    while (more) {
      const auto a = std::pair(ours.row().Text(0), ours.row().Integer(1));
      const auto b = std::pair(theirs.row().Text(0), theirs.row().Integer(1));
      if (a == b && ours.row().Text(2) != theirs.row().Text(2)) diverged_.insert(a.first);
      if (a == b) more = ours.Next() && theirs.Next();
      if (a < b) more = ours.Next();
      if (b < a) more = theirs.Next();
    }
  }

  // When the episodes that are here ended.
  void ReadEnds() {
    RowStream ours(into_, "SELECT id, finished_at FROM episodes");
    while (ours.Next()) ends_[ours.row().Text(0)] = ours.row().Text(1);
  }

  // An older source lacks columns and tables.
  std::vector<ColumnInfo> CommonColumns(const std::string& table) {
    const std::vector<ColumnInfo> theirs = ColumnsOf(source_, table);
    std::vector<ColumnInfo> common;
    for (const ColumnInfo& column : ColumnsOf(into_, table)) {
      const bool has = std::any_of(theirs.begin(), theirs.end(),
                                   [&](const ColumnInfo& other) { return other.name == column.name; });
      if (has) common.push_back(column);
    }
    return common;
  }

  int64_t Count(const std::string& table) {
    return into_.QueryInteger(("SELECT count(*) FROM " + table).c_str());
  }

  int64_t CopyTable(const std::string& table) {
    const std::vector<ColumnInfo> columns = CommonColumns(table);
    if (columns.empty()) return 0;
    const std::string names = QuotedNames(columns);
    const int64_t before = Count(table);
    Statement insert = into_.Prepare(InsertSql("INSERT OR IGNORE", table, names));
    RowStream theirs(source_, fmt::format("SELECT {} FROM {}", names, table));
    while (theirs.Next()) {
      if (!IsWanted(table, columns, theirs.row())) continue;
      for (size_t i = 0; i < columns.size(); ++i) CopyValue(table, columns, i, theirs.row(), &insert);
      insert.Run();
    }
    return Count(table) - before;
  }

  // Rows of diverged episodes, and what hangs on their evaluations, stay out. Notes an evaluation's links.
  bool IsWanted(const std::string& table, const std::vector<ColumnInfo>& columns, const Statement& row) {
    std::string id, cached_from, superseded_by;
    bool is_wanted = true;
    for (size_t i = 0; i < columns.size(); ++i) {
      const std::string& name = columns[i].name;
      const auto value = [&] { return row.Text(static_cast<int>(i)); };
      if (name == "episode" && diverged_.count(value()) > 0) is_wanted = false;
      if (name == "evaluation" && left_out_.count(value()) > 0) is_wanted = false;
      if (table == "evaluations" && name == "id") id = value();
      if (IsLink(table, name)) (name == "cached_from" ? cached_from : superseded_by) = value();
    }
    if (table == "evaluations" && !is_wanted) left_out_.insert(id);
    if (is_wanted && !(cached_from + superseded_by).empty())
      links_.push_back({id, cached_from, superseded_by});
    return is_wanted;
  }

  void CopyValue(const std::string& table, const std::vector<ColumnInfo>& columns, size_t i,
                 const Statement& row, Statement* insert) {
    const int column = static_cast<int>(i), index = column + 1;
    if (row.IsNull(column) || IsLink(table, columns[i].name)) return insert->BindAt(index, nullptr);
    switch (columns[i].type) {
      case ColumnType::kText:
        return insert->BindAt(index, row.Text(column));
      case ColumnType::kInteger:
        return insert->BindAt(index, row.Integer(column));
      case ColumnType::kReal:
        return insert->BindAt(index, row.Real(column));
      case ColumnType::kBytes: {
        const std::string bytes = row.Text(column);
        // blobs.body, which in SQLite is text where codec, the column before the size, says so.
        if (into_.dialect() == SqlDialect::kSqlite && IsPlain(columns, row))
          return insert->BindAt(index, bytes);
        return insert->BindAt(index, std::vector<unsigned char>(bytes.begin(), bytes.end()));
      }
    }
  }

  static bool IsPlain(const std::vector<ColumnInfo>& columns, const Statement& row) {
    for (size_t i = 0; i < columns.size(); ++i) {
      if (columns[i].name == "codec") return row.Text(static_cast<int>(i)) == "plain";
    }
    return false;
  }

  // A verdict that repeats one which stayed out still is a repetition: of itself.
  void SetLinks() {
    Statement cached = into_.Prepare(
        "UPDATE evaluations SET cached_from = coalesce((SELECT o.id FROM evaluations o WHERE o.id = ?1), id) "
        "WHERE id = ?2 AND cached_from IS NULL");
    Statement superseded = into_.Prepare(
        "UPDATE evaluations SET superseded_by = (SELECT o.id FROM evaluations o WHERE o.id = ?1) "
        "WHERE id = ?2 AND superseded_by IS NULL");
    for (const Link& link : links_) {
      if (!link.cached_from.empty()) cached.Bind(link.cached_from, link.id).Run();
      if (!link.superseded_by.empty()) superseded.Bind(link.superseded_by, link.id).Run();
    }
  }

  // How far an episode got that was here before, if it went on there.
  void UpdateEpisodes() {
    std::string set, select;
    for (const char* column : kOutcomeColumns) {
      set += fmt::format("{}{} = ?", set.empty() ? "" : ", ", column);
      select += fmt::format("{}, ", column);
    }
    std::vector<ColumnInfo> columns;
    const std::vector<ColumnInfo> all = ColumnsOf(into_, "episodes");
    for (const char* name : kOutcomeColumns)
      columns.push_back(*std::find_if(all.begin(), all.end(), [&](const auto& c) { return c.name == name; }));
    const auto id_column = static_cast<int>(columns.size()), end_column = id_column - 1;
    Statement update = into_.Prepare(fmt::format("UPDATE episodes SET {} WHERE id = ?", set));
    RowStream theirs(source_, "SELECT " + select + "id FROM episodes");
    while (theirs.Next()) {
      const std::string id = theirs.row().Text(id_column);
      const auto ours = ends_.find(id);
      if (ours == ends_.end() || diverged_.count(id) > 0) continue;
      if (theirs.row().Text(end_column) <= ours->second) continue;
      for (size_t i = 0; i < columns.size(); ++i) CopyValue("episodes", columns, i, theirs.row(), &update);
      update.BindAt(id_column + 1, id);
      update.Run();
      ++result_.continued;
    }
  }

  void UpdateRuns() {
    Statement update = into_.Prepare("UPDATE runs SET finished_at = ? WHERE id = ? AND finished_at IS NULL");
    RowStream theirs(source_, "SELECT id, finished_at FROM runs WHERE finished_at IS NOT NULL");
    while (theirs.Next()) update.Bind(theirs.row().Text(1), theirs.row().Text(0)).Run();
  }

  struct Link {
    std::string id, cached_from, superseded_by;
  };

  Database& into_;
  Database& source_;
  MergeResult result_;
  std::set<std::string> diverged_;  // episodes
  std::set<std::string> left_out_;  // evaluations
  std::map<std::string, std::string> ends_;
  std::vector<Link> links_;
};

MergeResult MergeOnce(Database& into, Database& source) {
  const Snapshot snapshot(source);
  Transaction transaction(into);
  into.OpenBatch();
  const MergeResult result = Merger(into, source).Run();
  into.CloseBatch();
  transaction.Commit();
  return result;
}

// What tells a database of a server from all others.
std::string Identity(Database& database) {
  if (database.dialect() == SqlDialect::kSqlite) return "";
  return database.QueryText(
      "SELECT pg_postmaster_start_time() || ' ' || current_setting('port') || ' ' || current_database() || ' "
      "' "
      "|| current_schema()");
}

bool IsSame(Database& a, Database& b) {
  if (a.dialect() != b.dialect()) return false;
  std::error_code ignored;
  if (a.dialect() == SqlDialect::kSqlite) return std::filesystem::equivalent(a.path(), b.path(), ignored);
  return Identity(a) == Identity(b);
}

MergeResult MergeInto(Database& into, Database& source) {
  for (int repeats = 0;; ++repeats) {
    try {
      return MergeOnce(into, source);
    } catch (const NotTogether&) {
      throw Error(ExitCode::kBadRequest,
                  fmt::format("{}: a row refers to one that is missing; nothing was imported",
                              source.path().string()),
                  fmt::format("kevin db check --db {} says which", source.path().string()));
    } catch (const TryAgain&) {
      if (repeats == kMostMergeRepeats) {
        throw Error(ExitCode::kBroken, into.path().string() + ": other writers are always in the way",
                    "import when fewer workers write to it");
      }
    }
  }
}

}  // namespace

MergeResult Store::Import(const std::filesystem::path& source) {
  const std::lock_guard lock(impl_->mutex);
  const std::string address = source.string();
  Database from = IsPostgresAddress(address) ? Database(WithoutPassword(address), OpenPostgres(address))
                                             : Database(source, Database::Access::kReadOnly, kMergeTimeoutMs);
  if (IsSame(from, impl_->database)) {
    throw Error(ExitCode::kBadRequest, from.path().string() + ": is the database that is imported into",
                "give another one");
  }
  return MergeInto(impl_->database, from);
}

}  // namespace kevin
