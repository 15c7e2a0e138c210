// Files that are not, or no longer, or not yet a database of ours; and those of older formats, to be opened
// for ever.

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <iterator>
#include <thread>
#include <vector>

#include "env/error.h"
#include "tests/catch.h"
#include "tests/folders.h"
#include "tests/trajectories/sample_records.h"
#include "trajectories/formats.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

// "code: what | next step" of the Error that opening throws, or "opened".
std::string OpenError(const fs::path& path, OpenMode mode) {
  try {
    Store store = Store::Open(path, mode);
    store.ListEpisodes(1);
    return "opened";
  } catch (const Error& error) {
    CHECK_FALSE(error.next_step().empty());
    return std::to_string(static_cast<int>(error.code())) + ": " + error.what();
  }
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string Bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void Write(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

void MakeDatabase(const fs::path& path) {
  Store store = Store::Open(path, OpenMode::kCreate);
  const std::string episode = BeginSample(store);
  store.AppendTurn(episode, SampleTurn(1, 1.5));
  store.FinishEpisode(episode, {});
}

// Runs in a child that is no longer root, which no permission would stop.
int AsOrdinaryUser(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(90);
    try {
      _exit(body());
    } catch (...) {
      _exit(99);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("missing and misplaced files have different messages") {
  TemporaryFolder folder;
  CHECK(Contains(OpenError(folder / "none.db", OpenMode::kRead), "2: " + (folder / "none.db").string()));
  CHECK(Contains(OpenError(folder / "none.db", OpenMode::kWrite), "no such database"));
  CHECK_FALSE(fs::exists(folder / "none.db"));
  CHECK(Contains(OpenError(folder.path(), OpenMode::kCreate), "is a folder"));
  CHECK(Contains(OpenError(folder / "deep/er/kevin.db", OpenMode::kCreate), "does not exist"));
}

TEST_CASE("an empty file becomes a database") {
  TemporaryFolder folder;
  Write(folder / "kevin.db", "");
  CHECK(Contains(OpenError(folder / "kevin.db", OpenMode::kRead), "2: "));
  CHECK(OpenError(folder / "kevin.db", OpenMode::kCreate) == "opened");
  CHECK(OpenError(folder / "kevin.db", OpenMode::kRead) == "opened");
  Database database = Look(folder / "kevin.db");
  CHECK(database.QueryInteger("PRAGMA application_id") == kApplicationId);
  CHECK(database.QueryInteger("PRAGMA user_version") == kSchemaVersion);
  CHECK(database.QueryText("PRAGMA journal_mode") == "wal");
}

TEST_CASE("a file that is no database, or not ours, is refused and left alone") {
  TemporaryFolder folder;
  const std::string text = std::string(5000, 'k');
  Write(folder / "text.db", text);
  Database(folder / "other.db", Database::Access::kCreate, 1000).Execute("CREATE TABLE books(title)");
  const std::string other = Bytes(folder / "other.db");
  for (const OpenMode mode : {OpenMode::kRead, OpenMode::kWrite, OpenMode::kCreate}) {
    CHECK(Contains(OpenError(folder / "text.db", mode), "2: "));
    CHECK(Contains(OpenError(folder / "text.db", mode), "not a database"));
    CHECK(Contains(OpenError(folder / "other.db", mode), "not one of Kevin's"));
  }
  CHECK(Bytes(folder / "text.db") == text);
  CHECK(Bytes(folder / "other.db") == other);
}

TEST_CASE("a newer version is refused and left alone") {
  TemporaryFolder folder;
  MakeDatabase(folder / "kevin.db");
  const int newer = kSchemaVersion + 1;
  Look(folder / "kevin.db").Execute(("PRAGMA user_version = " + std::to_string(newer)).c_str());
  const std::string complaint =
      "newer (v" + std::to_string(newer) + ") than this program (v" + std::to_string(kSchemaVersion) + ")";
  const std::string before = Bytes(folder / "kevin.db");
  for (const OpenMode mode : {OpenMode::kRead, OpenMode::kWrite, OpenMode::kCreate}) {
    CHECK(Contains(OpenError(folder / "kevin.db", mode), complaint));
  }
  CHECK(Bytes(folder / "kevin.db") == before);
}

TEST_CASE("a damaged database is a bad request, not a crash") {
  TemporaryFolder folder;
  MakeDatabase(folder / "kevin.db");
  const std::string whole = Bytes(folder / "kevin.db");
  SECTION("garbage in every page but the first") {
    std::string damaged = whole;
    for (size_t i = 4096; i < damaged.size(); ++i) damaged[i] = static_cast<char>(i * 37);
    Write(folder / "kevin.db", damaged);
    CHECK(Contains(OpenError(folder / "kevin.db", OpenMode::kRead), "2: "));
    CHECK(Contains(OpenError(folder / "kevin.db", OpenMode::kCreate), "corrupt"));
  }
  SECTION("cut off") {
    Write(folder / "kevin.db", whole.substr(0, 10'000));
    CHECK(Contains(OpenError(folder / "kevin.db", OpenMode::kRead), "corrupt"));
  }
  SECTION("a header that lies") {
    std::string damaged = whole;
    damaged.replace(0, 15, "SQLite format 9");
    Write(folder / "kevin.db", damaged);
    CHECK(Contains(OpenError(folder / "kevin.db", OpenMode::kRead), "not a database"));
  }
}

TEST_CASE("without permission to write, reading works and writing is a bad request") {
  TemporaryFolder folder;
  MakeDatabase(folder / "kevin.db");
  MakeDatabase(folder / "file only.db");
  chmod((folder / "kevin.db").c_str(), 0444);
  chmod((folder / "file only.db").c_str(), 0444);
  chmod(folder.path().c_str(), 0555);
  const int result = AsOrdinaryUser([&] {
    if (!Contains(OpenError(folder / "new.db", OpenMode::kCreate), "2: ")) return 1;
    if (!Contains(OpenError(folder / "kevin.db", OpenMode::kWrite), "2: ")) return 2;
    if (OpenError(folder / "kevin.db", OpenMode::kRead) != "opened") return 3;
    if (OpenError(folder / "file only.db", OpenMode::kRead) != "opened") return 4;
    return 0;
  });
  CHECK(result == 0);
  chmod(folder.path().c_str(), 0777);
  CHECK(AsOrdinaryUser([&] {  // the folder would do, the file does not
          return Contains(OpenError(folder / "kevin.db", OpenMode::kCreate), "2: ") ? 0 : 1;
        }) == 0);
}

void CheckOlderFormat(Store& store, int version) {
  const auto episodes = store.ListEpisodes(10);
  REQUIRE(episodes.size() == 1);
  CHECK((episodes[0].problem == "level1/19" && episodes[0].turns == 2 && episodes[0].correct_turns == 1));
  CHECK((episodes[0].best_speedup == 1.4 && episodes[0].state == EpisodeState::kDone));
  CHECK(episodes[0].workload.tf32 == (version > 1));
  const auto turn = store.LoadTurn(episodes[0].id, 1);
  REQUIRE(turn);
  CHECK((turn->messages.size() == 2 && turn->messages[0].content == "You write kernels."));
  CHECK((turn->token_ids == SampleTurn(1, 1.5).token_ids && turn->logprobs == SampleTurn(1, 1.5).logprobs));
  CHECK((turn->evaluation.speedup->value == 1.5 && turn->evaluation.samples.size() == 2));
  CHECK(turn->evaluation.source == "kernel 1");
  CHECK(turn->evaluation.kernels.empty() == (version < 2));
  CHECK(turn->evaluation.device_s.has_value() == (version > 1));
  CHECK(store.LoadEvaluations(episodes[0].id, 1).size() == 2);
  CHECK((turn->evaluation.rules_version == 1 && !turn->evaluation.shared_gpu));
  CHECK((turn->trials.empty() && turn->tune_s == 0 && turn->reply_form.empty()));
  CHECK((!turn->evaluation.against_best && !turn->evaluation.against_best_turn));
  CHECK((turn->sampling.temperature == 0.9 && !turn->sampling.top_k && !turn->sampling.min_p));
  if (version < 3) return;
  REQUIRE(turn->evaluation.shapes.size() == 2);
  CHECK((turn->evaluation.shapes[1].size == "mine/2" && turn->evaluation.shapes[1].symbols.at("N") == 7));
  CHECK(std::get<Measured>(turn->evaluation.shapes[0].outcome).speedup.pairs == 30);
  const auto late = store.LoadTurn(episodes[0].id, 2);
  REQUIRE(late);
  const std::string reason = "verify at mine/2 (N = 7) took longer than 20 s";
  CHECK(OutcomeReason(OutcomeOf(late->evaluation)) == reason);
  REQUIRE(late->evaluation.shapes.size() == 2);
  CHECK(OutcomeReason(late->evaluation.shapes[1].outcome) == reason);
}

// What an upgrade moves into columns of their own.
void CheckMovedFields(Store& store) {
  const std::string episode = store.ListEpisodes(1)[0].id;
  const auto evaluations = store.LoadEvaluations(episode, 2);
  REQUIRE(evaluations.size() == 2);
  const auto limit = [](const Outcome& outcome) { return std::get<TimedOut>(outcome).limit_s; };
  CHECK((evaluations[0].timeout_phase == "verify at mine/2 (N = 7)" && evaluations[0].timeout_limit_s == 20));
  CHECK((limit(OutcomeOf(evaluations[0])) == 20 && limit(evaluations[0].shapes[1].outcome) == 20));
  CHECK(evaluations[1].failed_shape == "at mine/2 (N = 7)");
  CHECK(OutcomeReason(OutcomeOf(evaluations[1], evaluations[1].log)) == evaluations[1].reason);
  CHECK(OutcomeReason(OutcomeOf(evaluations[1])) == evaluations[1].reason);
  CHECK(OutcomeReason(evaluations[1].shapes[1].outcome) == evaluations[1].reason);
  CHECK(store.LoadTurn(episode, 1)->evaluation.machine == R"({"load":0.5})");
  CHECK(evaluations[0].machine == "{}");
}

std::string SchemaOf(Database& database) {
  std::string schema;
  Statement statement = database.Prepare(
      "SELECT s.name, c.name, c.type FROM sqlite_schema s JOIN pragma_table_info(s.name) c "
      "WHERE s.type IN ('table', 'view', 'index') ORDER BY s.name, c.name");
  while (statement.Step())
    schema += statement.Text(0) + "." + statement.Text(1) + " " + statement.Text(2) + "\n";
  return schema;
}

// tests/trajectories/data/vN.db were written once, by the case below in programs of these formats, and are never
// written again. v4.db to v9.db are v3.db after their programs had upgraded it. In v3.db evaluations with shapes, a
// time-out and a compile error were added.
TEST_CASE("older formats stay readable, and are left as they are by those who only read") {
  TemporaryFolder folder;
  for (const int version : {1, 2, 3, 4, 5, 6, 7, 8, 9}) {
    const std::string name = "v" + std::to_string(version) + ".db";
    fs::copy_file(SourceFolder() / "tests/trajectories/data" / name, folder / name);
    const std::string before = Bytes(folder / name);
    {
      Store store = Store::Open(folder / name, OpenMode::kRead);
      CheckOlderFormat(store, version);
      const Figures figures = store.LoadFigures();
      REQUIRE(figures.turns.size() == 2);
      CHECK((figures.turns[0].speedup == 1.5 && figures.episodes[0].best_log_se == 0.01));
      CHECK((figures.turns[0].rules_version == 1 && figures.episodes[0].best_rules_version == 1));
      CHECK(store.DoubtfulVerdicts().size() == 1);  // turn 2 has no candidate
    }
    CHECK(Bytes(folder / name) == before);
    CHECK(Look(folder / name).QueryInteger("PRAGMA user_version") == version);
  }
}

TEST_CASE("older formats are upgraded by those who write: same rows, the newest tables and views") {
  for (const int version : {1, 2, 3, 4, 5, 6, 7, 8, 9}) {
    TemporaryFolder folder;
    const fs::path path = folder / "old.db";
    const std::string name = "v" + std::to_string(version) + ".db";
    fs::copy_file(SourceFolder() / "tests/trajectories/data" / name, path);
    for (int i = 0; i < 2; ++i) {
      Store store = Store::Open(path, OpenMode::kWrite);
      CheckOlderFormat(store, version);
      if (version >= 3) CheckMovedFields(store);
    }
    const fs::path backup = folder / ("old.db.v" + std::to_string(version));
    REQUIRE(fs::exists(backup));  // and no other file: one copy, made once
    CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 2);
    CHECK(Look(backup).QueryInteger("PRAGMA user_version") == version);
    {
      Store store = Store::Open(backup, OpenMode::kRead);
      CheckOlderFormat(store, version);
    }
    {
      Store store = Store::Open(path, OpenMode::kCreate);
      const std::string episode = store.ListEpisodes(1)[0].id;
      store.AppendTurn(episode, SampleTurn(3, 1.5));
      store.FinishEpisode(episode, {});
      CHECK(store.LoadTurn(episode, 3)->trials.size() == 3);
      CHECK((store.LoadTurn(episode, 3)->sampling.top_k == 20 &&
             store.LoadTurn(episode, 3)->sampling.min_p == 0.05));
      CHECK(store.LoadTurn(episode, 3)->evaluation.against_best->value == 1.05);
      CHECK(store.LoadTurn(episode, 3)->evaluation.kernels == SampleTurn(3, 1.5).evaluation.kernels);
      const EvaluationRecord python = store.LoadTurn(episode, 3)->evaluation;
      CHECK((python.workload.rules == "open" && python.backend == "triton" && python.own_share == 0.75));
      CHECK(python.device_us == 9.5);
      CHECK(store.FindEpisode(BeginSample(store)).workload == SampleEpisode("").workload);
    }
    MakeDatabase(folder / "new.db");
    Database upgraded = Look(path), made = Look(folder / "new.db");
    CHECK(upgraded.QueryInteger("PRAGMA user_version") == kSchemaVersion);
    CHECK(SchemaOf(upgraded) == SchemaOf(made));
    CHECK(upgraded.QueryInteger("SELECT count(*) FROM turn_results WHERE peak_gb_per_s = 4000") ==
          (version == 1 ? 1 : 2));
    CHECK(upgraded.QueryInteger("SELECT count(*) FROM turn_returns") == 3);
    CHECK(
        upgraded.QueryText("SELECT group_concat(rules_version) FROM (SELECT rules_version FROM turn_results "
                           "ORDER BY turn)") == fmt::format("1,1,{}", kRulesVersion));
    CHECK(upgraded.QueryText("PRAGMA integrity_check") == "ok");
  }
}

TEST_CASE("turns of online training were sampled without filters, also in older formats") {
  TemporaryFolder folder;
  const fs::path path = folder / "old.db";
  fs::copy_file(SourceFolder() / "tests/trajectories/data/v7.db", path);
  Look(path).Execute(
      "UPDATE episodes SET policy = 'online:/runs/1'; UPDATE turns SET top_p = 1 WHERE turn = 1");
  Look(path).Execute("UPDATE turns SET temperature = NULL WHERE turn = 2");
  for (const OpenMode mode : {OpenMode::kRead, OpenMode::kWrite, OpenMode::kRead}) {
    Store store = Store::Open(path, mode);
    const std::string episode = store.ListEpisodes(1)[0].id;
    const SamplingRecord known = store.LoadTurn(episode, 1)->sampling,
                         unknown = store.LoadTurn(episode, 2)->sampling;
    CHECK((known.temperature == 0.9 && known.top_p == 1 && known.top_k == 0 && known.min_p == 0));
    CHECK((!unknown.temperature && !unknown.top_k && !unknown.min_p));
  }
}

TEST_CASE("an upgrade does not take the place of another file, and two programs make one copy") {
  TemporaryFolder folder;
  const fs::path path = folder / "old.db";
  fs::copy_file(SourceFolder() / "tests/trajectories/data/v3.db", path);
  Write(folder / "old.db.v3", "somebody's");
  std::vector<std::thread> programs;
  std::atomic<int> opened{0};
  for (int i = 0; i < 4; ++i) {
    programs.emplace_back([&] {
      Store::Open(path, OpenMode::kWrite);
      ++opened;
    });
  }
  for (auto& program : programs) program.join();
  CHECK(opened == 4);
  CHECK(Bytes(folder / "old.db.v3") == "somebody's");
  CHECK(Look(folder / "old.db.v3-2").QueryInteger("PRAGMA user_version") == 3);
  CHECK_FALSE(fs::exists(folder / "old.db.v3-3"));
}

TEST_CASE("an upgrade asks for disk space first") {
  CHECK_NOTHROW(RequireSpaceForUpgrade("kevin.db", 1'000'000, 2'000'000, true));
  CHECK_NOTHROW(RequireSpaceForUpgrade("kevin.db", 1'000'000, 1'000'000, false));
  try {
    RequireSpaceForUpgrade("kevin.db", 1'000'000, 1'900'000, true);
    FAIL("there is no room for the copy");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBroken);
    CHECK(Contains(error.what(),
                   "needs 2.0 MB of free disk space, half of it for a copy of the old file; 1.9 MB"));
    CHECK(Contains(error.next_step(), "--no-backup"));
  }
}

TEST_CASE("write data/vN.db", "[.make-data]") {
  const fs::path path =
      SourceFolder() / "tests/trajectories/data" / ("v" + std::to_string(kSchemaVersion) + ".db");
  REQUIRE_FALSE(fs::exists(path));
  {
    Store store = Store::Open(path, OpenMode::kCreate);
    const std::string episode = BeginSample(store);
    store.AppendTurn(episode, SampleTurn(1, 1.5));
    TurnRecord failed = SampleTurn(2, 1.0);
    failed.evaluation = {};
    failed.evaluation.outcome = "parse_failed";
    store.AppendTurn(episode, failed);
    EvaluationRecord confirm = SampleEvaluation("kernel 1", 1.4);
    confirm.purpose = "confirm";
    store.AppendEvaluation(episode, 1, confirm);
    store.FinishEpisode(episode, {EpisodeState::kDone, "", 1, 1.4, 1.3, 1.5, "best.cpp", 12.5});
  }
  Database database = Look(path);
  database.Execute("PRAGMA journal_mode = DELETE; PRAGMA page_size = 512; VACUUM; PRAGMA journal_mode = WAL");
}

}  // namespace
}  // namespace kevin
