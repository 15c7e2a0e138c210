#include "trajectories/formats.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "env/error.h"
#include "env/outcome.h"
#include "trajectories/identity.h"
#include "trajectories/store_impl.h"

namespace kevin {
namespace {

// Bytes that are no UTF-8 are shown escaped.
constexpr char kOwnTexts[] = R"(
CREATE TABLE kevin_format (version BIGINT NOT NULL);
INSERT INTO kevin_format VALUES ({});
CREATE FUNCTION kevin_text(bytes BYTEA) RETURNS TEXT LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN convert_from(bytes, 'UTF8');
EXCEPTION WHEN OTHERS THEN
  RETURN encode(bytes, 'escape');
END $$;
CREATE VIEW turn_messages AS
SELECT t.episode, t.turn, m.place - 1 AS position, m.value ->> 'role' AS role, kevin_text(b.body) AS content
FROM turns t CROSS JOIN LATERAL jsonb_array_elements(t.messages::jsonb) WITH ORDINALITY AS m(value, place)
JOIN blobs b ON b.hash = m.value ->> 'content';
)";

std::string WithoutComments(const std::string& sql) {
  std::istringstream lines(sql);
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("PRAGMA")) continue;
    text += line.substr(0, line.find("--")) + "\n";
  }
  return text;
}

std::string Replaced(const std::string& text, const char* pattern, const char* with) {
  return std::regex_replace(text, std::regex(pattern), with);
}

// Without the statement that makes this view.
std::string WithoutView(const std::string& views, const std::string& name) {
  const size_t start = views.find("CREATE VIEW " + name + " AS");
  if (start == std::string::npos) return views;
  return views.substr(0, start) + views.substr(views.find(';', start) + 1);
}

std::string WithTypesOfPostgres(std::string sql) {
  sql = Replaced(sql, R"(\bINTEGER\b)", "BIGINT");
  sql = Replaced(sql, R"(\bREAL\b)", "DOUBLE PRECISION");
  return Replaced(sql, R"(\b(ANY|BLOB)\b)", "BYTEA");
}

std::string TablesOfPostgres(const std::string& tables) {
  std::string sql = Replaced(WithoutComments(tables), R"(\) STRICT(, WITHOUT ROWID)?;)", ");");
  sql = Replaced(sql, R"(\bTEXT\b)", "TEXT COLLATE \"C\"");
  return WithTypesOfPostgres(std::move(sql));
}

// All but turn_messages.
std::string PostgresViews() {
  const char* const views = std::strstr(kSchema, "-- == VIEWS ==");
  return WithTypesOfPostgres(WithoutView(WithoutComments(views), "turn_messages"));
}

}  // namespace

std::string PostgresSchema() {
  const char* const views_start = std::strstr(kSchema, "-- == VIEWS ==");
  return TablesOfPostgres(std::string(kSchema, views_start)) + PostgresViews() +
         fmt::format(kOwnTexts, kSchemaVersion);
}

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr char kOneToTwo[] = R"(
ALTER TABLE episodes ADD COLUMN tf32 INTEGER NOT NULL DEFAULT 0;
ALTER TABLE evaluations ADD COLUMN kernels TEXT;
ALTER TABLE evaluations ADD COLUMN launch_list TEXT;
ALTER TABLE evaluations ADD COLUMN profile TEXT;
ALTER TABLE evaluations ADD COLUMN peak_gb_per_s REAL;
ALTER TABLE evaluations ADD COLUMN peak_gflop_per_s REAL;
ALTER TABLE evaluations ADD COLUMN device_s REAL;
)";

constexpr char kThreeToFour[] = R"(
ALTER TABLE evaluations ADD COLUMN timeout_phase TEXT;
ALTER TABLE evaluations ADD COLUMN timeout_limit_s REAL;
ALTER TABLE evaluations ADD COLUMN failed_shape TEXT;
ALTER TABLE evaluations ADD COLUMN shapes TEXT;
)";

constexpr char kThreeToFourOnServer[] = R"(
ALTER TABLE evaluations ADD COLUMN timeout_phase TEXT COLLATE "C", ADD COLUMN timeout_limit_s DOUBLE PRECISION,
  ADD COLUMN failed_shape TEXT COLLATE "C", ADD COLUMN shapes TEXT COLLATE "C";
)";

// What was stored before there was a version of the rules has version 1.
constexpr char kFourToFive[] = R"(
ALTER TABLE evaluations ADD COLUMN rules_version INTEGER NOT NULL DEFAULT 1;
ALTER TABLE evaluations ADD COLUMN shared_gpu INTEGER NOT NULL DEFAULT 0;
)";

constexpr char kFourToFiveOnServer[] = R"(
ALTER TABLE evaluations ADD COLUMN rules_version BIGINT NOT NULL DEFAULT 1,
  ADD COLUMN shared_gpu BIGINT NOT NULL DEFAULT 0;
)";

constexpr char kFiveToSix[] = "ALTER TABLE turns ADD COLUMN tune_s REAL NOT NULL DEFAULT 0";

constexpr char kSixToSeven[] = R"(
ALTER TABLE evaluations ADD COLUMN against_best REAL;
ALTER TABLE evaluations ADD COLUMN against_best_low REAL;
ALTER TABLE evaluations ADD COLUMN against_best_high REAL;
ALTER TABLE evaluations ADD COLUMN against_best_turn INTEGER;
ALTER TABLE turns ADD COLUMN reply_form TEXT;
)";

constexpr char kSixToSevenOnServer[] = R"(
ALTER TABLE evaluations ADD COLUMN against_best DOUBLE PRECISION, ADD COLUMN against_best_low DOUBLE PRECISION,
  ADD COLUMN against_best_high DOUBLE PRECISION, ADD COLUMN against_best_turn BIGINT;
ALTER TABLE turns ADD COLUMN reply_form TEXT COLLATE "C";
)";

// Turns of online training were sampled without filters, and top_p was stored.
constexpr char kSampledUnfiltered[] =
    "temperature IS NOT NULL AND top_p IS NOT NULL AND "
    "episode IN (SELECT id FROM {}episodes WHERE policy LIKE 'online:%')";

constexpr char kSevenToEight[] = R"(
ALTER TABLE turns ADD COLUMN top_k INTEGER;
ALTER TABLE turns ADD COLUMN min_p REAL;
UPDATE turns SET top_k = 0, min_p = 0 WHERE {};
)";

std::string SevenToEight() { return fmt::format(kSevenToEight, fmt::format(kSampledUnfiltered, "")); }

constexpr char kEightToNine[] = R"(
ALTER TABLE episodes ADD COLUMN rules TEXT NOT NULL DEFAULT 'kevin';
ALTER TABLE evaluations ADD COLUMN rules TEXT NOT NULL DEFAULT 'kevin';
ALTER TABLE evaluations ADD COLUMN backend TEXT;
ALTER TABLE evaluations ADD COLUMN own_share REAL;
ALTER TABLE evaluations ADD COLUMN device_us REAL;
UPDATE evaluations SET device_us = candidate_us WHERE kind IN ('cuda', 'ptx');
)";

constexpr char kEightToNineOnServer[] = R"(
ALTER TABLE episodes ADD COLUMN rules TEXT COLLATE "C" NOT NULL DEFAULT 'kevin';
ALTER TABLE evaluations ADD COLUMN rules TEXT COLLATE "C" NOT NULL DEFAULT 'kevin',
  ADD COLUMN backend TEXT COLLATE "C", ADD COLUMN own_share DOUBLE PRECISION, ADD COLUMN device_us DOUBLE PRECISION;
UPDATE evaluations SET device_us = candidate_us WHERE kind IN ('cuda', 'ptx');
)";

// As a reader of an older format sees them.
constexpr char kNoPython[] =
    "CAST('kevin' AS TEXT) AS rules, CAST(NULL AS TEXT) AS backend, CAST(NULL AS DOUBLE PRECISION) AS own_share, "
    "CASE WHEN kind IN ('cuda', 'ptx') THEN candidate_us END AS device_us";

constexpr char kNoComparison[] =
    "CAST(NULL AS DOUBLE PRECISION) AS against_best, CAST(NULL AS DOUBLE PRECISION) AS against_best_low, "
    "CAST(NULL AS DOUBLE PRECISION) AS against_best_high, CAST(NULL AS BIGINT) AS against_best_turn";

constexpr char kDropViews[] = R"(
DROP VIEW IF EXISTS attributed_turns; DROP VIEW IF EXISTS run_costs; DROP VIEW IF EXISTS episode_costs;
DROP VIEW IF EXISTS turn_costs; DROP VIEW IF EXISTS turn_returns; DROP VIEW IF EXISTS turn_results;
DROP VIEW IF EXISTS turn_messages;
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

// An index with a column more: evaluations_figures since format 5, turns_figures since format 7.
std::string IndexAnew(const std::string& name) {
  const char* const start = std::strstr(kSchema, ("CREATE INDEX " + name).c_str());
  return "DROP INDEX " + name + "; " + std::string(start, std::strchr(start, ';') + 1);
}

void UpgradeTables(Database& database, int64_t from) {
  database.Execute(kDropViews);
  if (from < 2) database.Execute(kOneToTwo);
  if (from < 3) {
    database.Execute(
        "ALTER TABLE evaluations ADD COLUMN machine_key TEXT;"
        "CREATE INDEX evaluations_machine_key ON evaluations(machine_key) WHERE machine_key IS NOT NULL");
  }
  if (from < 4) database.Execute(kThreeToFour);
  if (from < 5) database.Execute(kFourToFive);
  if (from < 6) {
    database.Execute(kFiveToSix);
    database.Execute(PartOfSchema("-- == KNOBS ==").c_str());
  }
  if (from < 7) database.Execute(kSixToSeven);
  if (from < 8) database.Execute(SevenToEight().c_str());
  if (from < 9) database.Execute(kEightToNine);
  if (from < 3) {
    AddCollections(database);
    database.Execute("DROP INDEX evaluations_turn");
    database.Execute(PartOfSchema("-- == DERIVED ==").c_str());
  } else {
    if (from < 5) database.Execute(IndexAnew("evaluations_figures").c_str());
    if (from < 7) database.Execute(IndexAnew("turns_figures").c_str());
  }
  database.Execute(ViewsOfSchema());
  if (from < 4) MoveOutcomeFields(database);
  database.Execute(fmt::format("PRAGMA user_version = {}", kSchemaVersion).c_str());
}

// --- Rows of formats 1 to 3: the fields of an outcome that were only in its text ---

// "verify took longer than 20 s"
void AddTimeOut(const std::string& reason, OutcomeFields* fields) {
  static const std::string kMiddle = " took longer than ";
  const size_t at = reason.find(kMiddle);
  if (at == std::string::npos) return;
  fields->timeout_phase = reason.substr(0, at);
  fields->timeout_limit_s = std::strtod(reason.c_str() + at + kMiddle.size(), nullptr);
}

// "at mine/2 (N = 1001): 3:5: error: ..."
void AddFailedShape(const std::string& reason, OutcomeFields* fields) {
  const size_t end = reason.find("): ");
  if (reason.starts_with("at ") && end != std::string::npos) fields->failed_shape = reason.substr(0, end + 1);
}

OutcomeFields FieldsInText(const std::string& outcome, const std::string& reason) {
  OutcomeFields fields;
  if (outcome == "timed_out") AddTimeOut(reason, &fields);
  if (outcome == "compile_failed") AddFailedShape(reason, &fields);
  return fields;
}

std::string TextIn(const Json& shape, const char* name) {
  const auto found = shape.find(name);
  return found != shape.end() && found->is_string() ? found->get<std::string>() : "";
}

void AddFieldsToShape(Json* shape) {
  const OutcomeFields fields = FieldsInText(TextIn(*shape, "outcome"), TextIn(*shape, "reason"));
  if (!fields.timeout_phase.empty()) (*shape)["timeout_phase"] = fields.timeout_phase;
  if (fields.timeout_limit_s) (*shape)["timeout_limit_s"] = *fields.timeout_limit_s;
  if (!fields.failed_shape.empty()) (*shape)["failed_shape"] = fields.failed_shape;
}

// A row that may lack columns of format 4.
struct OldRow {
  std::string id, outcome, reason, machine;
};

std::vector<OldRow> NextOldRows(Database& database, const std::string& after) {
  Statement find = database.Prepare(
      "SELECT id, outcome, reason, machine FROM evaluations WHERE id > ? AND (machine LIKE '%\"shapes\"%' "
      "OR (outcome = 'timed_out' AND timeout_phase IS NULL)) ORDER BY id LIMIT 500");
  std::vector<OldRow> rows;
  find.Bind(after);
  while (find.Step()) rows.push_back({find.Text(0), find.Text(1), find.Text(2), find.Text(3)});
  return rows;
}

void MoveFieldsOf(Database& database, const OldRow& row) {
  std::string machine = row.machine, shapes;
  try {
    Json all = Json::parse(row.machine);
    if (all.is_object() && all.contains("shapes")) {
      for (Json& shape : all["shapes"]) AddFieldsToShape(&shape);
      shapes = DumpJson(all["shapes"]);
      all.erase("shapes");
      machine = DumpJson(all);
    }
  } catch (const Json::exception&) {
    shapes.clear(), machine = row.machine;  // foreign text stays as it is
  }
  const OutcomeFields fields = FieldsInText(row.outcome, row.reason);
  database
      .Prepare(
          "UPDATE evaluations SET machine = ?, shapes = coalesce(?, shapes), timeout_phase = ?, "
          "timeout_limit_s = ?, failed_shape = ? WHERE id = ?")
      .Bind(machine, NullIfEmpty(shapes), NullIfEmpty(fields.timeout_phase), fields.timeout_limit_s,
            NullIfEmpty(fields.failed_shape), row.id)
      .Run();
}

// --- The copy of the old file ---

// FILE.v3, or FILE.v3-2 and so on where that is taken.
fs::path FreeBackupName(const fs::path& file, int64_t format) {
  const std::string first = fmt::format("{}.v{}", file.string(), format);
  std::string name = first;
  for (int n = 2; fs::exists(name); ++n) name = fmt::format("{}-{}", first, n);
  return name;
}

// The copy while the upgrade may still fail: it is then deleted.
struct UnfinishedCopy {
  fs::path path;
  ~UnfinishedCopy() {
    std::error_code ignored;
    if (!path.empty()) fs::remove(path, ignored);
  }
};

void Copy(Database& database, const fs::path& to) {
  std::error_code ignored;
  fs::remove(to, ignored);
  database.Prepare("VACUUM INTO ?").Bind(to.string()).Run();
  const int file = open(to.c_str(), O_RDONLY | O_CLOEXEC);
  const bool is_durable = file >= 0 && fsync(file) == 0;
  if (file >= 0) close(file);
  if (!is_durable)
    throw Error(ExitCode::kBroken, to.string() + ": the copy of the old file cannot be written",
                "check the disk, or upgrade without a copy: kevin db migrate --no-backup");
}

int64_t BytesOf(Database& database) {
  return database.QueryInteger("PRAGMA page_count") * database.QueryInteger("PRAGMA page_size");
}

}  // namespace

void RequireSpaceForUpgrade(const fs::path& file, int64_t bytes, int64_t free_bytes, bool with_backup) {
  const int64_t needed = bytes * (with_backup ? 2 : 1);
  if (free_bytes >= needed) return;
  const auto megabytes = [](int64_t b) { return static_cast<double>(b) / 1e6; };
  throw Error(
      ExitCode::kBroken,
      fmt::format("{}: the upgrade to format {} needs {:.1f} MB of free disk space{}; {:.1f} MB are free",
                  file.string(), kSchemaVersion, megabytes(needed),
                  with_backup ? ", half of it for a copy of the old file" : "", megabytes(free_bytes)),
      with_backup ? "free some space, or upgrade without a copy: kevin db migrate --no-backup"
                  : "free some space");
}

int64_t FormatOf(Database& database) {
  return database.QueryInteger(
      database.dialect() == SqlDialect::kSqlite ? "PRAGMA user_version" : "SELECT version FROM kevin_format");
}

fs::path UpgradeFile(Database& database, bool with_backup) {
  constexpr int kMostCopies = 5;  // while other programs write
  for (int copies = 1;; ++copies) {
    const int64_t from = FormatOf(database);
    if (from == kSchemaVersion) return {};
    const fs::path& file = database.path();
    std::error_code no_space_known;
    const fs::space_info space = fs::space(fs::absolute(file).parent_path(), no_space_known);
    if (!no_space_known)
      RequireSpaceForUpgrade(file, BytesOf(database), static_cast<int64_t>(space.available), with_backup);
    const int64_t data_version = database.QueryInteger("PRAGMA data_version");
    UnfinishedCopy copy;
    if (with_backup) {
      copy.path = fmt::format("{}.v{}.{}.unfinished", file.string(), from, NewUlid());
      Copy(database, copy.path);
    }
    Transaction transaction(database);
    if (FormatOf(database) == kSchemaVersion) return {};  // another process was faster
    const bool is_stale = database.QueryInteger("PRAGMA data_version") != data_version;
    if (with_backup && is_stale && copies < kMostCopies) continue;
    if (with_backup) {
      const fs::path backup = FreeBackupName(file, from);
      fs::rename(copy.path, backup);
      copy.path = backup;
    }
    UpgradeTables(database, from);
    transaction.Commit();
    return std::exchange(copy.path, {});
  }
}

void UpgradeServer(Database& database) {
  Transaction transaction(database);
  database.QueryText(fmt::format("SELECT pg_advisory_xact_lock({})", kApplicationId).c_str());
  const int64_t from = FormatOf(database);
  if (from == kSchemaVersion) return;
  // Nobody takes a lease in the meantime.
  database.Execute("LOCK TABLE work_items, evaluations IN ACCESS EXCLUSIVE MODE");
  const int64_t leases = database.QueryInteger(
      "SELECT count(*) FROM work_items WHERE state = 'leased' AND lease_until > "
      "to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')");
  if (leases > 0) {
    throw Error(ExitCode::kBadRequest,
                fmt::format("{}: workers hold {} leases; the format is not changed under them",
                            database.path().string(), leases),
                "stop kevin collect on all machines (or wait until its leases run out), then run this again");
  }
  if (from < 4) database.Execute(kThreeToFourOnServer);
  if (from < 5) {
    database.Execute(kFourToFiveOnServer);
    database.Execute(IndexAnew("evaluations_figures").c_str());
  }
  if (from < 6) {
    database.Execute(WithTypesOfPostgres(kFiveToSix).c_str());
    database.Execute(TablesOfPostgres(PartOfSchema("-- == KNOBS ==")).c_str());
  }
  if (from < 7) {
    database.Execute(kSixToSevenOnServer);
    database.Execute(IndexAnew("turns_figures").c_str());
  }
  if (from < 8) database.Execute(WithTypesOfPostgres(SevenToEight()).c_str());
  if (from < 9) database.Execute(kEightToNineOnServer);
  // Replaced, not dropped: rights that were granted on them stay.
  database.Execute(Replaced(PostgresViews(), "CREATE VIEW", "CREATE OR REPLACE VIEW").c_str());
  if (from < 4) MoveOutcomeFields(database);
  database.Execute(fmt::format("UPDATE kevin_format SET version = {}", kSchemaVersion).c_str());
  transaction.Commit();
}

void MoveOutcomeFields(Database& database) {
  std::string last;
  for (;;) {
    const std::vector<OldRow> rows = NextOldRows(database, last);
    if (rows.empty()) return;
    for (const OldRow& row : rows) MoveFieldsOf(database, row);
    last = rows.back().id;
  }
}

namespace {

void ReadTurnsAsNewest(Database& database, int64_t format, const std::string& schema) {
  database.Execute(
      fmt::format(
          "CREATE TEMP VIEW turns AS SELECT *, {0}{1}CAST(CASE WHEN {2} THEN 0 END AS BIGINT) AS top_k, "
          "CAST(CASE WHEN {2} THEN 0 END AS DOUBLE PRECISION) AS min_p FROM {3}.turns",
          format < 6 ? "CAST(0 AS DOUBLE PRECISION) AS tune_s, " : "",
          format < 7 ? "CAST(NULL AS TEXT) AS reply_form, " : "",
          fmt::format(kSampledUnfiltered, schema + "."), schema)
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
