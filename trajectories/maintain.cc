#include "trajectories/maintain.h"

#include <fmt/format.h>

#include "env/error.h"
#include "trajectories/blob.h"
#include "trajectories/database.h"
#include "trajectories/schema.h"
#include "trajectories/store.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;
constexpr int kBusyTimeoutMs = 30'000;

Database OpenChecked(const fs::path& path, Database::Access access) {
  Store::Open(path, OpenMode::kRead);  // refuses what is not ours
  return Database(path, access, kBusyTimeoutMs);
}

DatabaseFinding CheckFile(Database& database) {
  std::string problems;
  Statement row = database.Prepare("PRAGMA integrity_check(5)");
  while (row.Step()) problems += (problems.empty() ? "" : "; ") + row.Text(0);
  if (problems == "ok") return {"file", true, "The file is whole.", ""};
  return {"file", false, problems,
          fmt::format("save what can be read: sqlite3 '{}' .recover | sqlite3 rescued.db",
                      database.path().string())};
}

DatabaseFinding CheckReferences(Database& database) {
  int64_t broken = 0;
  std::string first;
  Statement row = database.Prepare("PRAGMA foreign_key_check");
  for (; row.Step(); ++broken) {
    if (broken == 0)
      first =
          fmt::format("row {} of {} refers to a missing row of {}", row.Integer(1), row.Text(0), row.Text(2));
  }
  if (broken == 0) return {"references", true, "Every row that another refers to is there.", ""};
  return {"references", false, fmt::format("{} rows refer to missing ones; {}", broken, first),
          "import the rest from the database it came from: kevin import-records FILE"};
}

DatabaseFinding CheckTexts(Database& database) {
  int64_t texts = 0, wrong = 0;
  std::string first;
  Statement row = database.Prepare("SELECT hash, codec, size, body FROM blobs");
  for (; row.Step(); ++texts) {
    bool is_right = false;
    try {
      const std::string bytes = row.Text(1) == "zlib" ? Decompress(row.Text(3), row.Integer(2)) : row.Text(3);
      is_right = ContentHash(bytes) == row.Text(0) && static_cast<int64_t>(bytes.size()) == row.Integer(2);
    } catch (const Error&) {  // no zlib stream
    }
    if (!is_right && wrong++ == 0) first = row.Text(0);
  }
  const int64_t missing = database.QueryInteger(
      "SELECT count(*) FROM turns t, json_each(t.messages) m WHERE m.value ->> 'content' NOT IN (SELECT hash "
      "FROM blobs)");
  if (wrong == 0 && missing == 0)
    return {"texts", true, fmt::format("All {} texts and arrays are what their names say.", texts), ""};
  return {"texts", false,
          fmt::format("{} of {} texts are not what their names say{}; {} messages have no text", wrong, texts,
                      wrong ? " (" + first + ")" : "", missing),
          "the turns that use them cannot be read in full; import them from another copy"};
}

DatabaseFinding CheckVerdicts(Database& database) {
  const int64_t without = database.QueryInteger(
      "SELECT count(*) FROM turns t WHERE NOT EXISTS (SELECT 1 FROM evaluations e WHERE e.episode = "
      "t.episode "
      "AND e.turn = t.turn AND e.purpose IN ('turn', 'start'))");
  const int64_t chains = database.QueryInteger(
      "SELECT count(*) FROM evaluations a JOIN evaluations b ON b.id = a.superseded_by "
      "WHERE b.superseded_by IS NOT NULL AND b.superseded_by <> b.id");
  if (without == 0 && chains == 0) return {"verdicts", true, "Every turn has its verdict.", ""};
  return {"verdicts", false,
          fmt::format("{} turns have no verdict; {} verdicts are overridden by one that is overridden itself",
                      without, chains),
          "the database was edited; such turns are left out of reports"};
}

DatabaseFinding CheckFormat(Database& database) {
  const int64_t version = database.QueryInteger("PRAGMA user_version");
  if (version == kSchemaVersion)
    return {"format", true, fmt::format("Format {}, this program's.", version), ""};
  return {
      "format", true,
      fmt::format("Format {}, older than this program's {}; it is read as it is.", version, kSchemaVersion),
      "kevin db migrate brings it up to date, and so does the next run that writes"};
}

std::vector<std::string> Tables(Database& database) {
  std::vector<std::string> names;
  Statement row =
      database.Prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'");
  while (row.Step()) names.push_back(row.Text(0));
  return names;
}

// "SELECT column FROM table UNION ALL ..." for every column that refers to `target`.
std::string ReferencesTo(Database& database, const std::string& target) {
  std::string sql;
  for (const std::string& table : Tables(database)) {
    Statement row = database.Prepare(fmt::format(
        "SELECT \"from\" FROM pragma_foreign_key_list('{}') WHERE \"table\" = '{}'", table, target));
    while (row.Step())
      sql += fmt::format("{0}SELECT {1} FROM {2} WHERE {1} IS NOT NULL", sql.empty() ? "" : " UNION ALL ",
                         row.Text(0), table);
  }
  return sql;
}

int64_t DeleteUnused(Database& database, const std::string& table, const std::string& used) {
  database.Execute(fmt::format("DELETE FROM {} WHERE hash NOT IN ({})", table, used).c_str());
  return database.QueryInteger("SELECT changes()");
}

}  // namespace

std::vector<DatabaseFinding> CheckDatabase(const fs::path& path,
                                           const std::function<void(const std::string&)>& on_progress) {
  Database database = OpenChecked(path, Database::Access::kReadOnly);
  using Check = DatabaseFinding (*)(Database&);
  const std::pair<const char*, Check> checks[] = {{"file", &CheckFile},
                                                  {"references", &CheckReferences},
                                                  {"texts", &CheckTexts},
                                                  {"verdicts", &CheckVerdicts},
                                                  {"format", &CheckFormat}};
  std::vector<DatabaseFinding> findings;
  for (const auto& [name, check] : checks) {
    if (on_progress) on_progress(name);
    findings.push_back(check(database));
    if (!findings.back().ok && findings.back().name == "file") break;  // the others would stumble over it
  }
  return findings;
}

CompactResult CompactDatabase(const fs::path& path) {
  Store::Open(path, OpenMode::kWrite);  // to this format first
  Database database = OpenChecked(path, Database::Access::kReadWrite);
  CompactResult result;
  const auto size = [&] {
    database.Execute("PRAGMA wal_checkpoint(TRUNCATE)");
    return static_cast<int64_t>(fs::file_size(path));
  };
  result.bytes_before = size();
  {
    Transaction transaction(database);
    result.candidates = DeleteUnused(database, "candidates", ReferencesTo(database, "candidates"));
    result.texts =
        DeleteUnused(database, "blobs",
                     ReferencesTo(database, "blobs") +
                         " UNION ALL SELECT m.value ->> 'content' FROM turns t, json_each(t.messages) m");
    transaction.Commit();
  }
  database.Execute("VACUUM; PRAGMA optimize");
  result.bytes_after = size();
  return result;
}

MigrateResult MigrateDatabase(const fs::path& path, bool with_backup) {
  MigrateResult result;
  result.to = kSchemaVersion;
  {
    Database database = OpenChecked(path, Database::Access::kReadOnly);
    result.from = database.QueryInteger("PRAGMA user_version");
    if (result.from == result.to) return result;
    if (with_backup) {
      result.backup = path.string() + fmt::format(".v{}", result.from);
      if (fs::exists(result.backup)) {
        throw Error(ExitCode::kBadRequest,
                    result.backup.string() + ": exists already, so no backup can be made there",
                    "move it away, or migrate with --no-backup");
      }
      database.Prepare("VACUUM INTO ?").Bind(result.backup.string()).Run();
    }
  }
  Store::Open(path, OpenMode::kWrite);
  return result;
}

}  // namespace kevin
