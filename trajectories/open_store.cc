#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdio>

#include "env/error.h"
#include "env/printable.h"
#include "trajectories/catalog.h"
#include "trajectories/engine.h"
#include "trajectories/formats.h"
#include "trajectories/schema_text.h"
#include "trajectories/store_impl.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;
constexpr int kBusyTimeoutMs = 30'000;

void CheckPath(const fs::path& path, OpenMode mode) {
  std::error_code ignored;
  const std::string name = path.string();
  if (fs::is_directory(path, ignored)) {
    throw Error(ExitCode::kBadRequest, fmt::format("{}: is a folder, not a database", name),
                "give a file with --db");
  }
  if (mode != OpenMode::kCreate) {
    if (fs::exists(path, ignored)) return;
    throw Error(ExitCode::kBadRequest, fmt::format("{}: no such database", name),
                "make one with: kevin run --problem level1/19, or name another with --db");
  }
  const fs::path folder = path.parent_path();
  if (!folder.empty() && !fs::is_directory(folder, ignored)) {
    throw Error(ExitCode::kBadRequest, fmt::format("{}: folder {} does not exist", name, folder.string()),
                fmt::format("make it with: mkdir -p {}", folder.string()));
  }
}

void RequireNotNewer(const std::string& name, int64_t version) {
  if (version > kSchemaVersion) {
    throw Error(
        ExitCode::kBadRequest,
        fmt::format("{}: database is newer (v{}) than this program (v{})", name, version, kSchemaVersion),
        "update Kevin, or give another file with --db; this one is left as it is");
  }
}

// True if the file is a database of this version or an older one, false if it is still empty; anything else
// is refused.
bool IsKevinDatabase(Database& database) {
  database.Execute("BEGIN");  // one snapshot: another process may be creating the tables just now
  const int64_t application = database.QueryInteger("PRAGMA application_id");
  const int64_t version = database.QueryInteger("PRAGMA user_version");
  const int64_t objects = database.QueryInteger("SELECT count(*) FROM sqlite_schema");
  database.Execute("COMMIT");
  const std::string name = database.path().string();
  if (application == 0 && version == 0 && objects == 0) return false;
  if (application != kApplicationId) {
    throw Error(ExitCode::kBadRequest, fmt::format("{}: an SQLite database, but not one of Kevin's", name),
                "give another file with --db; this one is left as it is");
  }
  RequireNotNewer(name, version);
  if (version < 1) {
    throw Error(ExitCode::kBadRequest,
                fmt::format("{}: database has the impossible version {}", name, version),
                "give another file with --db");
  }
  return true;
}

void CreateTables(Database& database) {
  Transaction transaction(database);
  if (database.QueryInteger("SELECT count(*) FROM sqlite_schema") == 0) database.Execute(kSchema);
  transaction.Commit();
}

Database OpenFile(const fs::path& path, OpenMode mode) {
  CheckPath(path, mode);
  const auto access = mode == OpenMode::kRead    ? Database::Access::kReadOnly
                      : mode == OpenMode::kWrite ? Database::Access::kReadWrite
                                                 : Database::Access::kCreate;
  Database database(path, access, kBusyTimeoutMs);
  const bool has_tables = IsKevinDatabase(database);
  if (mode == OpenMode::kRead) {
    if (!has_tables) {
      throw Error(ExitCode::kBadRequest, fmt::format("{}: the database is empty", path.string()),
                  "kevin run stores an episode in it");
    }
    ReadAsNewest(database, database.QueryInteger("PRAGMA user_version"));
  } else {
    database.PrepareForWriting();
    if (!has_tables) CreateTables(database);
    const int64_t format = database.QueryInteger("PRAGMA user_version");
    const fs::path backup = UpgradeFile(database, true);
    if (!backup.empty()) {
      fmt::print(stderr, "{}: upgraded from format {} to {}; a copy of the old file is {}\n",
                 PrintableLine(path.string()), format, kSchemaVersion, PrintableLine(backup.string()));
    }
  }
  return database;
}

// Not to_regclass(), which may remember that there was none.
bool HasTablesOnServer(Database& database) {
  return database.QueryInteger(
             "SELECT count(*) FROM pg_tables WHERE tablename = 'kevin_format' "
             "AND schemaname = ANY(current_schemas(false))") > 0;
}

// Of another program's tables none may be in our way.
void RequireRoomForTables(Database& database) {
  for (const std::string& table : SchemaTables()) {
    if (ColumnsOf(database, table).empty()) continue;
    throw Error(ExitCode::kBadRequest,
                fmt::format("{}: not one of Kevin's databases: it has a table {} of another program",
                            database.path().string(), table),
                "make one for Kevin (createdb kevin) and give its address with --db");
  }
}

// One process makes the tables, the others wait for it.
void CreateTablesOnServer(Database& database) {
  Transaction transaction(database);
  database.QueryText(fmt::format("SELECT pg_advisory_xact_lock({})", kApplicationId).c_str());
  if (!HasTablesOnServer(database)) {
    RequireRoomForTables(database);
    database.Execute(PostgresSchema().c_str());
  }
  transaction.Commit();
}

// The server's tables came with format 3.
int64_t FormatOnServer(Database& database) {
  Statement row = database.Prepare("SELECT version FROM kevin_format");
  const bool found = row.Step();
  if (found && row.Integer(0) >= 3) return row.Integer(0);
  throw Error(ExitCode::kBadRequest,
              fmt::format("{}: table kevin_format {}", database.path().string(),
                          found ? fmt::format("has the impossible version {}", row.Integer(0)) : "is empty"),
              "the database was edited; restore a backup, or give another with --db");
}

Database OpenServer(const std::string& address, OpenMode mode) {
  const std::string name = WithoutPassword(address);
  Database database(name, OpenPostgres(address));
  const bool has_tables = HasTablesOnServer(database);
  if (!has_tables && mode != OpenMode::kCreate) {
    throw Error(ExitCode::kBadRequest, fmt::format("{}: no Kevin database is there yet", name),
                "kevin run --db with this address makes one");
  }
  if (!has_tables) CreateTablesOnServer(database);
  const int64_t version = FormatOnServer(database);
  RequireNotNewer(name, version);
  if (version < kSchemaVersion && mode != OpenMode::kRead) {
    throw Error(
        ExitCode::kBadRequest,
        fmt::format("{}: database has format {}, this program writes {}", name, version, kSchemaVersion),
        fmt::format("stop the workers on it, then upgrade it with: kevin db migrate --db {}", name));
  }
  ReadAsNewest(database, version);
  return database;
}

}  // namespace

Store Store::Open(const fs::path& path, OpenMode mode) {
  if (IsPostgresAddress(path.string())) {
    return Store(std::make_unique<Impl>(OpenServer(path.string(), mode), std::pair<uint64_t, uint64_t>{}));
  }
  Database database = OpenFile(path, mode);
  return Store(std::make_unique<Impl>(std::move(database), FileIdentity(path)));
}

}  // namespace kevin
