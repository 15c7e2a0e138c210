// A server's tables of older formats, and tables that are not Kevin's.

#include "env/error.h"
#include "tests/catch.h"
#include "tests/trajectories/postgres_server.h"
#include "tests/trajectories/sample_records.h"
#include "tests/trajectories/test_database.h"
#include "trajectories/engine.h"
#include "trajectories/formats.h"
#include "trajectories/maintain.h"
#include "trajectories/schema_text.h"

namespace kevin {
namespace {

// The views of an older format: those of today without the columns of newer ones.
std::string OlderViews(int format) {
  std::string all = PostgresSchema();
  all = all.substr(0, all.find("CREATE TABLE kevin_format"));
  std::string views = all.substr(all.find("CREATE VIEW turn_results"));
  const auto remove = [&](const std::string& from, const std::string& to) {
    const size_t start = views.find(from);
    views.erase(start, views.find(to, start) - start);
  };
  remove(format < 6   ? ",\n       k.setting"
         : format < 7 ? ",\n       own.against_best"
                      : ",\n       e.rules",
         "\nFROM turns t");
  if (format < 6) remove("\nLEFT JOIN knob_trials", ";");
  if (format < 5) remove(", e.rules_version", "\nFROM turns t");
  for (size_t at = 0; (at = views.find("CREATE VIEW", at)) != std::string::npos; at += 20)
    views.insert(at + 6, " OR REPLACE");
  return views;
}

// The tables as an older program made them.
void MakeOlder(const TestDatabase& test, int format) {
  const std::string shapes =
      R"([{"size":"mine/1","symbols":{"N":7},"weight":1,"outcome":"wrong","reason":"no"}])";
  Database database = test.Look();
  database.Execute(
      "UPDATE evaluations SET outcome = 'timed_out', reason = 'verify took longer than 20 s', "
      "timeout_phase = 'verify', timeout_limit_s = 20, machine = '{\"load\":1}'");
  database.Execute(("UPDATE evaluations SET shapes = '" + shapes + "'").c_str());
  database.Execute(
      "ALTER TABLE episodes DROP COLUMN rules; "
      "ALTER TABLE evaluations DROP COLUMN rules CASCADE, DROP COLUMN backend CASCADE, DROP COLUMN own_share CASCADE, "
      "DROP COLUMN device_us CASCADE");
  if (format < 8) database.Execute("ALTER TABLE turns DROP COLUMN top_k, DROP COLUMN min_p");
  if (format >= 7) {
    database.Execute(OlderViews(format).c_str());
    database.Execute(("UPDATE kevin_format SET version = " + std::to_string(format)).c_str());
    return;
  }
  database.Execute(
      "ALTER TABLE evaluations DROP COLUMN against_best CASCADE, DROP COLUMN against_best_low CASCADE, "
      "DROP COLUMN against_best_high CASCADE, DROP COLUMN against_best_turn CASCADE;"
      "ALTER TABLE turns DROP COLUMN reply_form CASCADE; CREATE INDEX turns_figures ON turns(episode, turn)");
  if (format < 6)
    database.Execute("DROP TABLE knob_trials CASCADE; ALTER TABLE turns DROP COLUMN tune_s CASCADE");
  if (format < 5) {
    database.Execute(
        "ALTER TABLE evaluations DROP COLUMN rules_version CASCADE, DROP COLUMN shared_gpu CASCADE");
    database.Execute("CREATE INDEX evaluations_figures ON evaluations(episode, turn)");
  }
  if (format < 4) {
    database.Execute(("UPDATE evaluations SET machine = '{\"load\":1,\"shapes\":" + shapes + "}'").c_str());
    database.Execute(
        "ALTER TABLE evaluations DROP COLUMN timeout_phase, DROP COLUMN timeout_limit_s, "
        "DROP COLUMN failed_shape, DROP COLUMN shapes");
  }
  database.Execute(OlderViews(format).c_str());
  database.Execute(("UPDATE kevin_format SET version = " + std::to_string(format)).c_str());
}

TEST_CASE(
    "a server's tables of formats 3 to 8 are read as they are; only migrate upgrades them, while nobody has a "
    "lease") {
  const int format = GENERATE(3, 4, 5, 6, 7, 8);
  const TestDatabase test;
  std::string episode;
  {
    Store store = test.Open(OpenMode::kCreate);
    episode = BeginSample(store);
    TurnRecord turn = SampleTurn(1, 1.5);
    turn.evaluation.shared_gpu = true;
    store.AppendTurn(episode, turn);
  }
  MakeOlder(test, format);
  const std::string complaint =
      "has format " + std::to_string(format) + ", this program writes " + std::to_string(kSchemaVersion);
  CHECK(Contains(OpenError(test.address(), OpenMode::kWrite), complaint));
  CHECK(Contains(OpenError(test.address(), OpenMode::kCreate), complaint));
  for (const DatabaseFinding& f : CheckDatabase(test.address(), {})) CHECK(f.ok);
  const auto check = [&](OpenMode mode) {
    Store store = test.Open(mode);
    const auto turn = store.LoadTurn(episode, 1);
    REQUIRE(turn);
    REQUIRE(turn->evaluation.shapes.size() == 1);
    CHECK(OutcomeReason(turn->evaluation.shapes[0].outcome) == "no");
    CHECK(OutcomeReason(OutcomeOf(turn->evaluation)) == "verify took longer than 20 s");
    CHECK(turn->evaluation.timeout_limit_s.value_or(0) == (mode == OpenMode::kRead && format == 3 ? 0 : 20));
    CHECK((turn->evaluation.rules_version == (format < 5 ? 1 : kRulesVersion) &&
           turn->evaluation.shared_gpu == (format >= 5)));
    CHECK((turn->trials.empty() == (format < 6) && (turn->tune_s == 0) == (format < 6)));
    CHECK((!turn->evaluation.against_best == (format < 7) && turn->reply_form.empty() == (format < 7)));
    CHECK((turn->sampling.top_k.has_value() == (format >= 8) &&
           turn->sampling.min_p.has_value() == (format >= 8)));
    CHECK((turn->evaluation.workload.rules == "kevin" && !turn->evaluation.own_share &&
           !turn->evaluation.device_us));
    CHECK((store.LoadFigures().turns.size() == 1 &&
           store.DoubtfulVerdicts().size() == 1));  // old, or shared_gpu
  };
  check(OpenMode::kRead);
  test.Look().Execute(
      "INSERT INTO work_items(id, run, spec, state, lease_owner, lease_until, created_at) "
      "SELECT 'ITEM', id, '{}', 'leased', 'somebody', '2999', '2026' FROM runs");
  try {
    MigrateDatabase(test.address(), true);
    FAIL("a worker is at it");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadRequest);
    CHECK(Contains(error.what(), "workers hold 1 leases"));
  }
  check(OpenMode::kRead);
  test.Look().Execute("UPDATE work_items SET lease_until = '2000'");
  const MigrateResult result = MigrateDatabase(test.address(), true);
  CHECK((result.from == format && result.to == kSchemaVersion && result.backup.empty()));
  CHECK(MigrateDatabase(test.address(), true).from == kSchemaVersion);
  check(OpenMode::kWrite);
  CHECK(test.Look().QueryText("SELECT machine FROM evaluations") == R"({"load":1})");
  CHECK(test.Look().QueryInteger("SELECT rules_version FROM turn_results") ==
        (format < 5 ? 1 : kRulesVersion));
  CHECK((test.Look().QueryInteger("SELECT count(*) FROM knob_trials") == 0) == (format < 6));
  Store::Open(test.address(), OpenMode::kWrite).AppendTurn(episode, SampleTurn(2, 1.5));
  CHECK(test.Look().QueryText("SELECT knobs FROM turn_results WHERE turn = 2") == R"({"TILE":64,"A":1})");
  CHECK(test.Look().QueryInteger("SELECT count(*) FROM pg_indexes WHERE indexname = 'evaluations_figures' "
                                 "AND indexdef LIKE '%rules_version%'") == 1);
}

TEST_CASE("what is not ours on a server is left alone") {
  const TestDatabase test;
  test.Look().Execute("CREATE TABLE runs (name TEXT)");
  CHECK(Contains(OpenError(test.address(), OpenMode::kCreate), "a table runs of another program"));
  const TestDatabase edited;
  edited.Open(OpenMode::kCreate);
  CHECK(MigrateDatabase(edited.address(), true).from == kSchemaVersion);
  edited.Look().Execute("UPDATE kevin_format SET version = 2");
  CHECK(Contains(OpenError(edited.address(), OpenMode::kRead), "the impossible version 2"));
  edited.Look().Execute("DELETE FROM kevin_format");
  CHECK(Contains(OpenError(edited.address(), OpenMode::kWrite), "kevin_format is empty"));
}

}  // namespace
}  // namespace kevin
