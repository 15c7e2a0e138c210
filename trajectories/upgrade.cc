#include "trajectories/upgrade.h"

#include <fmt/format.h>

#include <cstring>

#include "trajectories/schema.h"

namespace kevin {
namespace {

constexpr char kOneToTwo[] = R"(
ALTER TABLE episodes ADD COLUMN tf32 INTEGER NOT NULL DEFAULT 0;
ALTER TABLE evaluations ADD COLUMN kernels TEXT;
ALTER TABLE evaluations ADD COLUMN launch_list TEXT;
ALTER TABLE evaluations ADD COLUMN profile TEXT;
ALTER TABLE evaluations ADD COLUMN peak_gb_per_s REAL;
ALTER TABLE evaluations ADD COLUMN peak_gflop_per_s REAL;
ALTER TABLE evaluations ADD COLUMN device_s REAL;
)";

constexpr char kReadOneAsTwo[] = R"(
CREATE TEMP VIEW episodes AS SELECT *, 0 AS tf32 FROM main.episodes;
CREATE TEMP VIEW evaluations AS
SELECT *, NULL AS kernels, NULL AS launch_list, NULL AS profile, NULL AS peak_gb_per_s,
       NULL AS peak_gflop_per_s, NULL AS device_s
FROM main.evaluations;
)";

// Made by the text of schema.sql itself, from the mark of the derived tables up to the views.
void UpgradeTwoToThree(Database& database) {
  const char* const begin = std::strstr(kSchema, "-- == DERIVED ==");
  const char* const end = std::strstr(begin, "-- == VIEWS ==");
  database.Execute("DROP INDEX evaluations_turn");
  database.Execute(std::string(begin, end).c_str());
}

int64_t Version(Database& database) { return database.QueryInteger("PRAGMA user_version"); }

// The part of schema.sql that makes the views; all of them are derived, so they can be made anew.
const char* ViewsOfSchema() { return std::strstr(kSchema, "-- == VIEWS =="); }

}  // namespace

void UpgradeToNewest(Database& database) {
  if (Version(database) == kSchemaVersion) return;
  Transaction transaction(database);
  if (Version(database) == kSchemaVersion) return;  // another process was faster
  database.Execute("DROP VIEW turn_returns; DROP VIEW turn_results; DROP VIEW turn_messages");
  if (Version(database) < 2) database.Execute(kOneToTwo);
  if (Version(database) < 3) UpgradeTwoToThree(database);
  database.Execute(ViewsOfSchema());
  database.Execute(fmt::format("PRAGMA user_version = {}", kSchemaVersion).c_str());
  transaction.Commit();
}

void ReadAsNewest(Database& database) {
  if (Version(database) < 2) database.Execute(kReadOneAsTwo);
}

}  // namespace kevin
