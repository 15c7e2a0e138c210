#include "trajectories/maintain_impl.h"

#include <fmt/format.h>

#include "trajectories/catalog.h"
#include "trajectories/postgres.h"
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

}  // namespace

Database OpenForMaintenance(const std::filesystem::path& path, Database::Access access) {
  Store::Open(path, OpenMode::kRead);
  const std::string address = path.string();
  if (!IsPostgresAddress(address)) return Database(path, access, kMaintenanceTimeoutMs);
  return Database(WithoutPassword(address), OpenPostgres(address));
}

int64_t FormatOf(Database& database) {
  return database.QueryInteger(
      database.dialect() == SqlDialect::kSqlite ? "PRAGMA user_version" : "SELECT version FROM kevin_format");
}

int64_t CountUnused(Database& database, const std::string& table) {
  return database.QueryInteger(
      fmt::format("SELECT count(*) FROM ({}) unused", UnusedHashes(database, table)).c_str());
}

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

}  // namespace kevin
