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

// Format 3: requests to servers.
constexpr char kAddRequests[] = R"(
CREATE TABLE requests (
  episode TEXT NOT NULL REFERENCES episodes(id), turn INTEGER NOT NULL, attempt INTEGER NOT NULL,
  run TEXT NOT NULL REFERENCES runs(id), provider TEXT NOT NULL, url TEXT NOT NULL, model TEXT NOT NULL,
  request TEXT NOT NULL REFERENCES blobs(hash), started_at TEXT NOT NULL,
  outcome TEXT NOT NULL CHECK (outcome IN ('sent', 'answered', 'failed', 'cancelled', 'cached')),
  status INTEGER, error TEXT, retry_after_s REAL, seconds REAL, first_token_s REAL, served_model TEXT,
  request_id TEXT, stop_cause TEXT, prompt_tokens INTEGER, completion_tokens INTEGER, cached_tokens INTEGER,
  cache_write_tokens INTEGER, reasoning_tokens INTEGER, cost_usd REAL, response TEXT REFERENCES blobs(hash),
  PRIMARY KEY (episode, turn, attempt)
) STRICT;
CREATE INDEX requests_run ON requests(run);
)";

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
  if (Version(database) < 3) database.Execute(kAddRequests);
  database.Execute(ViewsOfSchema());
  database.Execute(fmt::format("PRAGMA user_version = {}", kSchemaVersion).c_str());
  transaction.Commit();
}

void ReadAsNewest(Database& database) {
  if (Version(database) < 2) database.Execute(kReadOneAsTwo);
  if (Version(database) < 3) database.Execute(kReadWithoutRequests);
}

}  // namespace kevin
