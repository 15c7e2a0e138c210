// How a reader of the newest format sees a database of an older one: temporary views with the newer columns.

#include <fmt/format.h>

#include <string>

#include "trajectories/formats.h"

namespace kevin {
namespace {

constexpr char kNoPython[] =
    "CAST('kevin' AS TEXT) AS rules, CAST(NULL AS TEXT) AS backend, CAST(NULL AS DOUBLE PRECISION) AS own_share, "
    "CASE WHEN kind IN ('cuda', 'ptx') THEN candidate_us END AS device_us";

constexpr char kNoComparison[] =
    "CAST(NULL AS DOUBLE PRECISION) AS against_best, CAST(NULL AS DOUBLE PRECISION) AS against_best_low, "
    "CAST(NULL AS DOUBLE PRECISION) AS against_best_high, CAST(NULL AS BIGINT) AS against_best_turn";

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

constexpr char kReadWithoutTrials[] = R"(
CREATE TEMP VIEW knob_trials AS
SELECT CAST('' AS TEXT) AS episode, 0 AS turn, 0 AS position, CAST('' AS TEXT) AS setting,
       CAST(NULL AS TEXT) AS outcome, CAST('' AS TEXT) AS reason, CAST(NULL AS REAL) AS candidate_us, 0 AS stopped,
       0 AS chosen, CAST(0 AS REAL) AS seconds
WHERE 1 = 0;
)";

constexpr char kReadTwoAsThree[] = R"(
CREATE TEMP TABLE collections (run TEXT, key TEXT, spec TEXT, finished_at TEXT);
CREATE TEMP TABLE collection_workers (run TEXT, collection TEXT);
CREATE TEMP VIEW work_items AS
SELECT *, NULL AS device, 0 AS faults, 0 AS kills, NULL AS not_before, 0 AS turns, 0 AS prompt_tokens,
       0 AS completion_tokens, 0.0 AS device_s FROM main.work_items;
)";

void ReadTurnsAsNewest(Database& database, int64_t format, const std::string& schema) {
  database.Execute(
      fmt::format(
          "CREATE TEMP VIEW turns AS SELECT *, {0}{1}CAST(CASE WHEN {2} THEN 0 END AS BIGINT) AS top_k, "
          "CAST(CASE WHEN {2} THEN 0 END AS DOUBLE PRECISION) AS min_p FROM {3}.turns",
          format < 6 ? "CAST(0 AS DOUBLE PRECISION) AS tune_s, " : "",
          format < 7 ? "CAST(NULL AS TEXT) AS reply_form, " : "", SampledUnfiltered(schema + "."), schema)
          .c_str());
}

}  // namespace

void ReadAsNewest(Database& database, int64_t format) {
  if (format >= 9) return;  // format 10 has another view alone
  const bool is_server = database.dialect() == SqlDialect::kPostgres;
  const std::string schema =
      is_server ? database.QueryText("SELECT quote_ident(current_schema())") : std::string("main");
  if (format < 6) database.Execute(kReadWithoutTrials);
  database.Execute(
      fmt::format("CREATE TEMP VIEW episodes AS SELECT *, {}CAST('kevin' AS TEXT) AS rules FROM {}.episodes",
                  format < 2 ? "0 AS tf32, " : "", schema)
          .c_str());
  if (format < 8) ReadTurnsAsNewest(database, format, schema);
  if (format >= 5) {
    database.Execute(fmt::format("CREATE TEMP VIEW evaluations AS SELECT *, {}{} FROM {}.evaluations",
                                 format < 7 ? std::string(kNoComparison) + ", " : "", kNoPython, schema)
                         .c_str());
    return;
  }
  if (is_server) {
    const char* const of_four =
        "NULL::text AS timeout_phase, NULL::double precision AS timeout_limit_s, NULL::text AS failed_shape, "
        "(machine::jsonb -> 'shapes')::text AS shapes, ";
    database.Execute(fmt::format("CREATE TEMP VIEW evaluations AS SELECT *, {}1::bigint AS rules_version, "
                                 "0::bigint AS shared_gpu, {}, {} FROM {}.evaluations",
                                 format < 4 ? of_four : "", kNoComparison, kNoPython, schema)
                         .c_str());
    return;
  }
  std::string columns = "*";
  if (format < 2)
    columns +=
        ", NULL AS kernels, NULL AS launch_list, NULL AS profile, NULL AS peak_gb_per_s, "
        "NULL AS peak_gflop_per_s, NULL AS device_s";
  if (format < 3) columns += ", NULL AS machine_key";
  if (format < 4)
    columns +=
        ", NULL AS timeout_phase, NULL AS timeout_limit_s, NULL AS failed_shape, "
        "CASE WHEN json_valid(machine) THEN json_extract(machine, '$.shapes') END AS shapes";
  columns += fmt::format(", 1 AS rules_version, 0 AS shared_gpu, {}, {}", kNoComparison, kNoPython);
  database.Execute(
      fmt::format("CREATE TEMP VIEW evaluations AS SELECT {} FROM main.evaluations", columns).c_str());
  if (format < 3) {
    database.Execute(kReadWithoutRequests);
    database.Execute(kReadTwoAsThree);
  }
}

}  // namespace kevin
