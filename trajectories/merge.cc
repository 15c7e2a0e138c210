#include "trajectories/merge.h"

#include <fmt/format.h>

#include <algorithm>

#include "env/error.h"
#include "trajectories/sqlite.h"
#include "trajectories/store.h"
#include "trajectories/store_impl.h"

namespace kevin {
namespace {

// Attached while this lives.
class Attached {
 public:
  Attached(Database& database, const std::filesystem::path& source) : database_(database) {
    database_.Prepare("ATTACH DATABASE ? AS source").Bind(ReadOnlyUri(source)).Run();
  }
  Attached(const Attached&) = delete;
  Attached& operator=(const Attached&) = delete;
  ~Attached() {
    try {
      database_.Execute("DROP TABLE IF EXISTS temp.diverged");
      database_.Execute("DETACH DATABASE source");
    } catch (const Error&) {  // the error that brought us here is the one to report
    }
  }

 private:
  Database& database_;
};

std::vector<std::string> Names(Database& database, const std::string& sql) {
  std::vector<std::string> names;
  Statement row = database.Prepare(sql);
  while (row.Step()) names.push_back(row.Text(0));
  return names;
}

std::vector<std::string> ColumnsOf(Database& database, const std::string& schema, const std::string& table) {
  return Names(database, fmt::format("SELECT name FROM pragma_table_info('{}', '{}')", table, schema));
}

// An older source lacks columns and tables.
std::vector<std::string> CommonColumns(Database& database, const std::string& table) {
  const std::vector<std::string> theirs = ColumnsOf(database, "source", table);
  std::vector<std::string> common;
  for (const std::string& column : ColumnsOf(database, "main", table)) {
    if (std::find(theirs.begin(), theirs.end(), column) != theirs.end()) common.push_back(column);
  }
  return common;
}

std::string Quoted(const std::vector<std::string>& columns) {
  std::string text;
  for (const std::string& column : columns) text += (text.empty() ? "\"" : ", \"") + column + "\"";
  return text;
}

// Rows of diverged episodes, and what hangs on their evaluations, stay out.
std::string Condition(const std::vector<std::string>& columns) {
  const auto has = [&](const char* name) {
    return std::find(columns.begin(), columns.end(), name) != columns.end();
  };
  if (has("episode")) return " WHERE episode IS NULL OR episode NOT IN (SELECT id FROM temp.diverged)";
  if (has("evaluation")) return " WHERE evaluation IN (SELECT id FROM main.evaluations)";
  return "";
}

int64_t CopyTable(Database& database, const std::string& table) {
  const std::vector<std::string> columns = CommonColumns(database, table);
  if (columns.empty()) return 0;
  const std::string list = Quoted(columns);
  database
      .Prepare(fmt::format("INSERT OR IGNORE INTO main.{0}({1}) SELECT {1} FROM source.{0}{2}", table, list,
                           Condition(columns)))
      .Run();
  return database.QueryInteger("SELECT changes()");
}

// Both have the episode, and a turn of the same number that was made at another time.
std::vector<std::string> FindDiverged(Database& database) {
  database.Execute(
      "CREATE TEMP TABLE diverged AS SELECT DISTINCT t.episode AS id FROM main.turns t JOIN source.turns s "
      "ON s.episode = t.episode AND s.turn = t.turn WHERE s.created_at <> t.created_at");
  return Names(database, "SELECT id FROM temp.diverged ORDER BY id");
}

// What may change in a row that both have: how far an episode got, a run's end, a verdict's last word.
int64_t UpdateShared(Database& database) {
  std::string set;
  for (const char* column : {"last_run", "turns_asked", "state", "state_reason", "best_turn", "best_speedup",
                             "best_speedup_low", "best_speedup_high", "best_path", "seconds", "finished_at"})
    set += fmt::format("{0}{1} = (SELECT s.{1} FROM source.episodes s WHERE s.id = episodes.id)",
                       set.empty() ? "" : ", ", column);
  database.Execute(("UPDATE main.episodes SET " + set +
                    " WHERE id IN (SELECT e.id FROM main.episodes e JOIN source.episodes s ON s.id = e.id "
                    "WHERE coalesce(s.finished_at, '') > coalesce(e.finished_at, '') AND e.id NOT IN (SELECT "
                    "id FROM temp.diverged))")
                       .c_str());
  const int64_t continued = database.QueryInteger("SELECT changes()");
  database.Execute(
      "UPDATE main.runs SET finished_at = (SELECT s.finished_at FROM source.runs s WHERE s.id = runs.id) "
      "WHERE finished_at IS NULL AND id IN (SELECT id FROM source.runs)");
  database.Execute(
      "UPDATE main.evaluations SET superseded_by = (SELECT s.superseded_by FROM source.evaluations s WHERE "
      "s.id = "
      "evaluations.id) WHERE superseded_by IS NULL AND id IN (SELECT s.id FROM source.evaluations s "
      "WHERE s.superseded_by IN (SELECT id FROM main.evaluations))");
  return continued;
}

}  // namespace

MergeResult MergeInto(Database& into, const std::filesystem::path& source) {
  const Attached attached(into, source);
  Transaction transaction(into);
  into.Execute("PRAGMA defer_foreign_keys = ON");  // an evaluation may refer to a later one
  MergeResult result;
  result.conflicts = FindDiverged(into);
  for (const std::string& table :
       Names(into,
             "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' "
             "AND name NOT IN ('work_items', 'attributions', 'turn_attributions') ORDER BY rowid")) {
    const int64_t added = CopyTable(into, table);
    if (table == "runs") result.runs = added;
    if (table == "episodes") result.episodes = added;
    if (table == "turns") result.turns = added;
    if (table == "evaluations") result.evaluations = added;
  }
  result.continued = UpdateShared(into);
  transaction.Commit();
  return result;
}

MergeResult Store::Import(const std::filesystem::path& source) {
  const std::lock_guard lock(impl_->mutex);
  std::error_code ignored;
  if (std::filesystem::equivalent(source, impl_->database.path(), ignored)) {
    throw Error(ExitCode::kBadRequest, source.string() + ": is the database that is imported into",
                "give another file");
  }
  return MergeInto(impl_->database, source);
}

}  // namespace kevin
