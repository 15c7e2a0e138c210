#include "trajectories/formats.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <utility>

#include "env/error.h"
#include "trajectories/identity.h"
#include "trajectories/schema_text.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

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

constexpr char kSevenToEight[] = R"(
ALTER TABLE turns ADD COLUMN top_k INTEGER;
ALTER TABLE turns ADD COLUMN min_p REAL;
UPDATE turns SET top_k = 0, min_p = 0 WHERE {};
)";

std::string SevenToEight() { return fmt::format(kSevenToEight, SampledUnfiltered("")); }

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

constexpr char kDropViews[] = R"(
DROP VIEW IF EXISTS attributed_turns; DROP VIEW IF EXISTS run_costs; DROP VIEW IF EXISTS episode_costs;
DROP VIEW IF EXISTS turn_costs; DROP VIEW IF EXISTS turn_returns; DROP VIEW IF EXISTS turn_results;
DROP VIEW IF EXISTS turn_messages;
)";

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

// Turns of online training were sampled without filters, and top_p was stored.
std::string SampledUnfiltered(const std::string& schema) {
  return fmt::format(
      "temperature IS NOT NULL AND top_p IS NOT NULL AND "
      "episode IN (SELECT id FROM {}episodes WHERE policy LIKE 'online:%')",
      schema);
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

}  // namespace kevin
