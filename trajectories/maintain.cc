#include "trajectories/maintain.h"

#include <fmt/format.h>

#include "env/error.h"
#include "trajectories/blob.h"
#include "trajectories/catalog.h"
#include "trajectories/engine.h"
#include "trajectories/formats.h"
#include "trajectories/store.h"

namespace kevin {
namespace {

constexpr int kMaintenanceTimeoutMs = 30'000;

std::string UnusedHashes(Database& database, const std::string& table) {
  std::string used = table == "blobs" ? MessageHashes(database) : "";
  for (const Reference& reference : ReferencesOf(database)) {
    if (reference.target != table) continue;
    used += fmt::format("{}SELECT {} FROM {}", used.empty() ? "" : " UNION ALL ", reference.column,
                        reference.table);
  }
  return fmt::format("SELECT hash FROM {} EXCEPT SELECT * FROM ({}) used", table, used);
}

// Refuses, as Store::Open does, a file that is not a database of Kevin's.
Database OpenForMaintenance(const std::filesystem::path& path, Database::Access access) {
  Store::Open(path, OpenMode::kRead);
  const std::string address = path.string();
  if (!IsPostgresAddress(address)) return Database(path, access, kMaintenanceTimeoutMs);
  return Database(WithoutPassword(address), OpenPostgres(address));
}

// Rows of `table` (blobs or candidates) that nothing refers to.
int64_t CountUnused(Database& database, const std::string& table) {
  return database.QueryInteger(
      fmt::format("SELECT count(*) FROM ({}) unused", UnusedHashes(database, table)).c_str());
}

// Within a transaction; how many.
int64_t DeleteUnused(Database& database, const std::string& table) {
  const std::string condition = fmt::format("hash IN ({})", UnusedHashes(database, table));
  if (database.dialect() == SqlDialect::kPostgres) {
    return database.QueryInteger(fmt::format("WITH gone AS (DELETE FROM {} WHERE {} RETURNING 1) SELECT "
                                             "count(*) FROM gone",
                                             table, condition)
                                     .c_str());
  }
  database.Execute(fmt::format("DELETE FROM {} WHERE {}", table, condition).c_str());
  return database.QueryInteger("SELECT changes()");
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

DatabaseFinding CheckServer(Database& database) {
  const int64_t format = FormatOf(database);
  for (const std::string& table : SchemaTables()) {
    if (table == "knob_trials" && format < 6) continue;
    if (ColumnsOf(database, table).empty()) {
      return {"server", false, "Table " + table + " is missing.",
              "restore a backup, or import what there is elsewhere: kevin import-records"};
    }
  }
  const int64_t indexes = database.QueryInteger(
      "SELECT count(*) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE NOT i.indisvalid "
      "AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())");
  const int64_t pages = database.QueryInteger(
      "SELECT coalesce(max(checksum_failures), 0) FROM pg_stat_database WHERE datname = current_database()");
  if (indexes == 0 && pages == 0) {
    return {"server", true, "All tables are there; the server has met no damaged page or index.", ""};
  }
  return {"server", false, fmt::format("{} damaged pages, {} invalid indexes", pages, indexes),
          indexes > 0 ? "psql -c 'REINDEX DATABASE' makes indexes anew" : "restore a backup"};
}

DatabaseFinding CheckWhole(Database& database) {
  return database.dialect() == SqlDialect::kSqlite ? CheckFile(database) : CheckServer(database);
}

DatabaseFinding CheckReferences(Database& database) {
  int64_t broken = 0;
  std::string first;
  for (const Reference& reference : ReferencesOf(database)) {
    const int64_t rows = database.QueryInteger(reference.dangling.c_str());
    if (rows > 0 && broken == 0)
      first = fmt::format("{} of {} to missing ones of {}", rows, reference.table, reference.target);
    broken += rows;
  }
  if (broken == 0) return {"references", true, "Every row that another refers to is there.", ""};
  return {"references", false, fmt::format("{} rows refer to missing ones; {}", broken, first),
          "import the rest from the database it came from: kevin import-records FILE"};
}

bool IsWhatItsNameSays(const Statement& blob) {
  try {
    const std::string bytes =
        blob.Text(1) == "zlib" ? Decompress(blob.Text(3), blob.Integer(2)) : blob.Text(3);
    return ContentHash(bytes) == blob.Text(0) && static_cast<int64_t>(bytes.size()) == blob.Integer(2);
  } catch (const Error&) {  // no zlib stream
    return false;
  }
}

DatabaseFinding CheckTexts(Database& database) {
  int64_t texts = 0, wrong = 0;
  std::string first;
  {
    RowStream blobs(database, "SELECT hash, codec, size, body FROM blobs");
    for (; blobs.Next(); ++texts) {
      if (!IsWhatItsNameSays(blobs.row()) && wrong++ == 0) first = blobs.row().Text(0);
    }
  }
  const int64_t missing =
      database.QueryInteger(fmt::format("SELECT count(*) FROM (SELECT hash FROM ({}) m EXCEPT SELECT hash "
                                        "FROM blobs) missing",
                                        MessageHashes(database))
                                .c_str());
  if (wrong == 0 && missing == 0)
    return {"texts", true, fmt::format("All {} texts and arrays are what their names say.", texts), ""};
  return {"texts", false,
          fmt::format("{} of {} texts are not what their names say{}; {} texts of messages are missing",
                      wrong, texts, wrong ? " (" + first + ")" : "", missing),
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

DatabaseFinding CheckUnused(Database& database) {
  const int64_t texts = CountUnused(database, "blobs"), kernels = CountUnused(database, "candidates");
  if (texts + kernels == 0) return {"unused", true, "Nothing is kept that nothing refers to.", ""};
  return {"unused", true, fmt::format("{} texts and {} kernels that nothing refers to.", texts, kernels),
          "kevin db compact deletes them"};
}

DatabaseFinding CountRows(Database& database) {
  std::string counts;
  for (const char* table : {"runs", "episodes", "turns", "evaluations", "samples", "blobs", "requests"}) {
    if (ColumnsOf(database, table).empty()) continue;  // of an older format
    const int64_t rows = database.QueryInteger(fmt::format("SELECT count(*) FROM {}", table).c_str());
    counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", rows,
                          std::string(table) == "blobs" ? "texts" : table);
  }
  return {"rows", true, counts + ".", ""};
}

DatabaseFinding CheckFormat(Database& database) {
  const int64_t version = FormatOf(database);
  if (version == kSchemaVersion)
    return {"format", true, fmt::format("Format {}, this program's.", version), ""};
  return {
      "format", true,
      fmt::format("Format {}, older than this program's {}; it is read as it is.", version, kSchemaVersion),
      "kevin db migrate upgrades it"};
}

}  // namespace

std::vector<DatabaseFinding> CheckDatabase(const std::filesystem::path& path,
                                           const std::function<void(const std::string&)>& on_progress) {
  Database database = OpenForMaintenance(path, Database::Access::kReadOnly);
  const bool is_file = database.dialect() == SqlDialect::kSqlite;
  using Check = DatabaseFinding (*)(Database&);
  const std::pair<const char*, Check> checks[] = {{is_file ? "file" : "server", &CheckWhole},
                                                  {"references", &CheckReferences},
                                                  {"texts", &CheckTexts},
                                                  {"verdicts", &CheckVerdicts},
                                                  {"unused", &CheckUnused},
                                                  {"rows", &CountRows},
                                                  {"format", &CheckFormat}};
  const Snapshot snapshot(database);
  std::vector<DatabaseFinding> findings;
  for (const auto& [name, check] : checks) {
    if (on_progress) on_progress(name);
    findings.push_back(check(database));
    if (!findings.back().ok && findings.size() == 1) break;  // the other checks would fail on it
  }
  return findings;
}

namespace {

namespace fs = std::filesystem;

int64_t SizeOf(Database& database) {
  if (database.dialect() == SqlDialect::kPostgres)
    return database.QueryInteger("SELECT pg_database_size(current_database())");
  database.Execute("PRAGMA wal_checkpoint(TRUNCATE)");
  return static_cast<int64_t>(fs::file_size(database.path()));
}

}  // namespace

CompactResult CompactDatabase(const fs::path& path) {
  Store::Open(path, OpenMode::kWrite);  // to this format first
  Database database = OpenForMaintenance(path, Database::Access::kReadWrite);
  const bool is_server = database.dialect() == SqlDialect::kPostgres;
  CompactResult result;
  result.bytes_before = SizeOf(database);
  {
    Transaction transaction(database);
    // A turn that is being stored may refer to a text that is there already.
    if (is_server) database.Execute("LOCK TABLE blobs, candidates IN SHARE ROW EXCLUSIVE MODE");
    result.candidates = DeleteUnused(database, "candidates");
    result.texts = DeleteUnused(database, "blobs");
    transaction.Commit();
  }
  database.Execute(is_server ? "VACUUM ANALYZE" : "VACUUM; PRAGMA optimize");
  result.bytes_after = SizeOf(database);
  return result;
}

MigrateResult MigrateDatabase(const fs::path& path, bool with_backup) {
  MigrateResult result;
  result.to = kSchemaVersion;
  Database database = OpenForMaintenance(path, Database::Access::kReadWrite);
  result.from = FormatOf(database);
  if (result.from == result.to) return result;
  if (database.dialect() == SqlDialect::kPostgres) {
    UpgradeServer(database);
  } else {
    database.PrepareForWriting();
    result.backup = UpgradeFile(database, with_backup);
  }
  return result;
}

}  // namespace kevin
