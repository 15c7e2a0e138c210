#include "trajectories/maintain.h"

#include <fmt/format.h>

#include "trajectories/maintain_impl.h"
#include "trajectories/schema.h"
#include "trajectories/store.h"
#include "trajectories/upgrade.h"

namespace kevin {
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
