#include "trajectories/upgrade.h"

#include <fmt/format.h>

#include <cstring>
#include <string>

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
       NULL AS peak_gflop_per_s, NULL AS device_s, NULL AS machine_key
FROM main.evaluations;
)";

constexpr char kReadTwoEvaluations[] =
    "CREATE TEMP VIEW evaluations AS SELECT *, NULL AS machine_key FROM main.evaluations";

// The columns that the store reads, and no rows.
constexpr char kReadWithoutRequests[] = R"(
CREATE TEMP VIEW requests AS
SELECT '' AS episode, 0 AS turn, 0 AS attempt, '' AS run, '' AS provider, '' AS url, '' AS model, '' AS request,
       '' AS started_at, '' AS outcome, NULL AS status, NULL AS error, NULL AS retry_after_s, NULL AS seconds,
       NULL AS first_token_s, NULL AS served_model, NULL AS request_id, NULL AS stop_cause,
       NULL AS prompt_tokens, NULL AS completion_tokens, NULL AS cached_tokens, NULL AS cache_write_tokens,
       NULL AS reasoning_tokens, NULL AS cost_usd, NULL AS response
WHERE 0;
)";

constexpr char kReadTwoAsThree[] = R"(
CREATE TEMP TABLE collections (run TEXT, key TEXT, spec TEXT, finished_at TEXT);
CREATE TEMP TABLE collection_workers (run TEXT, collection TEXT);
CREATE TEMP VIEW work_items AS
SELECT *, NULL AS device, 0 AS faults, 0 AS kills, NULL AS not_before, 0 AS turns, 0 AS prompt_tokens,
       0 AS completion_tokens, 0.0 AS device_s FROM main.work_items;
)";

int64_t Version(Database& database) { return database.QueryInteger("PRAGMA user_version"); }

// The part of schema.sql that makes the views; all of them are derived, so they can be made anew.
const char* ViewsOfSchema() { return std::strstr(kSchema, "-- == VIEWS =="); }

// From one "-- == NAME ==" of schema.sql to the next.
std::string PartOfSchema(const char* marker) {
  const char* const start = std::strstr(kSchema, marker);
  return std::string(start, std::strstr(start + std::strlen(marker), "-- == "));
}

// And requests, which are in the same part.
void AddCollections(Database& database) {
  database.Execute("DROP TABLE work_items");
  database.Execute(PartOfSchema("-- == COLLECTIONS ==").c_str());
}

}  // namespace

void UpgradeToNewest(Database& database) {
  if (Version(database) == kSchemaVersion) return;
  Transaction transaction(database);
  if (Version(database) == kSchemaVersion) return;  // another process was faster
  database.Execute("DROP VIEW turn_returns; DROP VIEW turn_results; DROP VIEW turn_messages");
  if (Version(database) < 2) database.Execute(kOneToTwo);
  database.Execute(
      "ALTER TABLE evaluations ADD COLUMN machine_key TEXT;"
      "CREATE INDEX evaluations_machine_key ON evaluations(machine_key) WHERE machine_key IS NOT NULL");
  AddCollections(database);
  database.Execute("DROP INDEX evaluations_turn");
  database.Execute(PartOfSchema("-- == DERIVED ==").c_str());
  database.Execute(ViewsOfSchema());
  database.Execute(fmt::format("PRAGMA user_version = {}", kSchemaVersion).c_str());
  transaction.Commit();
}

void ReadAsNewest(Database& database) {
  if (Version(database) < 2) database.Execute(kReadOneAsTwo);
  if (Version(database) == 2) database.Execute(kReadTwoEvaluations);
  if (Version(database) < 3) {
    database.Execute(kReadWithoutRequests);
    database.Execute(kReadTwoAsThree);
  }
}

}  // namespace kevin
