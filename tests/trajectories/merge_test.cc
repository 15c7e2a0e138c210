// Databases merged into one, and looked after.

#include "env/error.h"
#include "tests/catch.h"
#include "tests/folders.h"
#include "tests/trajectories/sample_records.h"
#include "trajectories/formats.h"
#include "trajectories/maintain.h"
#include "trajectories/store.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

int64_t Count(const fs::path& path, const std::string& from) {
  return Look(path).QueryInteger(("SELECT count(*) FROM " + from).c_str());
}

std::string MakeOne(const fs::path& path, double speedup) {
  Store store = Store::Open(path, OpenMode::kCreate);
  const std::string episode = BeginSample(store);
  const std::string first = store.AppendTurn(episode, SampleTurn(1, speedup));
  TurnRecord repeat = SampleTurn(2, speedup);
  repeat.evaluation.cached_from = first;
  store.AppendTurn(episode, repeat);
  store.FinishEpisode(episode, {});
  return episode;
}

TEST_CASE("import adds what is new, once") {
  TemporaryFolder folder;
  const std::string a = MakeOne(folder / "a.db", 1.5), b = MakeOne(folder / "b.db", 2.5);
  Store store = Store::Open(folder / "a.db", OpenMode::kWrite);
  const MergeResult first = store.Import(folder / "b.db");
  CHECK((first.runs == 1 && first.episodes == 1 && first.turns == 2 && first.evaluations == 2));
  CHECK((first.continued == 0 && first.conflicts.empty()));
  const MergeResult again = store.Import(folder / "b.db");
  CHECK((again.runs == 0 && again.episodes == 0 && again.turns == 0 && again.evaluations == 0));
  CHECK(again.continued == 0);
  CHECK(store.ListEpisodes(10).size() == 2);
  const auto turn = store.LoadTurn(b, 1);
  REQUIRE(turn);
  CHECK((turn->evaluation.speedup->value == 2.5 && turn->evaluation.samples.size() == 2));
  CHECK((turn->token_ids == SampleTurn(1, 1).token_ids && turn->messages.size() == 2));
  CHECK(store.LoadTurn(a, 1)->evaluation.speedup->value == 1.5);
  CHECK(Count(folder / "a.db", "problems") == 1);
  CHECK(Count(folder / "a.db", "blobs") == Count(folder / "b.db", "blobs"));  // the same texts
  CHECK(Count(folder / "a.db", "pragma_foreign_key_check") == 0);
  CHECK(Look(folder / "a.db").QueryText("PRAGMA integrity_check") == "ok");
}

TEST_CASE("an episode that went on in the other file goes on here; one that diverged stays as it is") {
  TemporaryFolder folder;
  const std::string episode = MakeOne(folder / "a.db", 1.5);
  fs::copy_file(folder / "a.db", folder / "b.db");
  fs::copy_file(folder / "a.db", folder / "c.db");
  const auto go_on = [&](const std::string& name, double speedup) {
    Store store = Store::Open(folder / name, OpenMode::kWrite);
    const std::string run = store.BeginRun(SampleRun());
    store.ResumeEpisode(episode, run, 1);
    store.AppendTurn(episode, SampleTurn(3, speedup));
    EvaluationRecord audit = SampleEvaluation("kernel 1", 1);
    audit.purpose = "audit", audit.outcome = "wrong", audit.correct = false;
    store.Supersede({store.LoadTurn(episode, 1)->evaluation.id}, store.AppendEvaluation(episode, 1, audit));
    store.FinishEpisode(episode, {EpisodeState::kDone, "", 3, speedup, 1, 9, "best.cpp", 5});
  };
  go_on("b.db", 3);
  Store store = Store::Open(folder / "a.db", OpenMode::kWrite);
  const MergeResult result = store.Import(folder / "b.db");
  CHECK((result.turns == 1 && result.episodes == 0 && result.continued == 1 && result.runs == 1));
  CHECK((store.FindEpisode(episode).best_speedup == 3 && store.FindEpisode(episode).turns == 3));
  CHECK_FALSE(store.LoadTurn(episode, 1)->evaluation.superseded_by.empty());

  go_on("c.db", 7);
  const MergeResult diverged = store.Import(folder / "c.db");
  CHECK(diverged.conflicts == std::vector<std::string>{episode});
  CHECK((diverged.turns == 0 && diverged.evaluations == 0 && diverged.continued == 0));
  CHECK(store.LoadTurn(episode, 3)->evaluation.speedup->value == 3);
  CHECK(Count(folder / "a.db", "pragma_foreign_key_check") == 0);
}

TEST_CASE("a database of an older format is imported, and left as it is") {
  TemporaryFolder folder;
  Store store = Store::Open(folder / "a.db", OpenMode::kCreate);
  for (const int version : {1, 2}) {
    const fs::path old = folder / ("v" + std::to_string(version) + ".db");
    fs::copy_file(SourceFolder() / "tests/trajectories/data" / old.filename(), old);
    CHECK(store.Import(old).turns == 2);
    CHECK(store.Import(old).turns == 0);
    CHECK(Look(old).QueryInteger("PRAGMA user_version") == version);
  }
  CHECK(store.LoadFigures().turns.size() == 4);
  for (const TurnFigures& turn : store.LoadFigures().turns) CHECK(turn.rules_version == 1);
  CHECK_THROWS_AS(store.Import(folder / "a.db"), Error);
  CHECK_THROWS_AS(store.Import(folder / "none.db"), Error);
}

TEST_CASE("verdicts that were judged again in a copy come back with it") {
  TemporaryFolder folder;
  const std::string episode = MakeOne(folder / "a.db", 1.5);
  fs::copy_file(folder / "a.db", folder / "b.db");
  {
    Store copy = Store::Open(folder / "b.db", OpenMode::kWrite);
    EvaluationRecord now = SampleEvaluation("kernel 1", 1.1);
    now.purpose = "rejudge", now.key = "newer";
    copy.AppendRejudgement(episode, 1, now, copy.LoadTurn(episode, 1)->evaluation.key);
    copy.FinishEpisode(episode, {EpisodeState::kDone, "", 1, 1.1, 1, 1.2, "best.cpp", 0});
  }
  Store store = Store::Open(folder / "a.db", OpenMode::kWrite);
  const MergeResult result = store.Import(folder / "b.db");
  CHECK((result.evaluations == 1 && result.continued == 1 && result.conflicts.empty()));
  CHECK(store.LoadFigures().turns[0].speedup == 1.1);
  CHECK(store.FindEpisode(episode).best_speedup == 1.1);
}

const DatabaseFinding& Find(const std::vector<DatabaseFinding>& findings, const std::string& name) {
  for (const DatabaseFinding& f : findings) {
    if (f.name == name) return f;
  }
  FAIL("no finding " + name);
  return findings.front();
}

TEST_CASE("check finds what is wrong, and nothing where nothing is") {
  TemporaryFolder folder;
  const fs::path path = folder / "kevin.db";
  MakeOne(path, 1.5);
  for (const DatabaseFinding& f : CheckDatabase(path, {})) {
    INFO(f.name << ": " << f.found);
    CHECK(f.ok);
  }
  SECTION("a text that was edited") {
    Look(path).Execute("UPDATE blobs SET body = 'other' WHERE codec = 'plain'");
    CHECK_FALSE(Find(CheckDatabase(path, {}), "texts").ok);
  }
  SECTION("a text that is gone") {
    Look(path).Execute("PRAGMA foreign_keys = OFF; DELETE FROM blobs WHERE codec = 'plain'");
    CHECK_FALSE(Find(CheckDatabase(path, {}), "texts").ok);
  }
  SECTION("a turn without its verdict") {
    Look(path).Execute("PRAGMA foreign_keys = OFF; DELETE FROM evaluations WHERE turn = 2");
    CHECK_FALSE(Find(CheckDatabase(path, {}), "verdicts").ok);
    CHECK_FALSE(Find(CheckDatabase(path, {}), "references").ok);  // its samples
  }
  SECTION("an index that lost a row") {
    Look(path).Execute(
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM "
        "sqlite_schema "
        "WHERE name = 'problems_id') WHERE name = 'episodes_run'");
    CHECK_FALSE(Find(CheckDatabase(path, {}), "file").ok);
  }
}

TEST_CASE("compact deletes what nothing refers to, and nothing else") {
  TemporaryFolder folder;
  const fs::path path = folder / "kevin.db";
  const std::string episode = MakeOne(path, 1.5);
  Look(path).Execute(("INSERT INTO blobs VALUES ('" + std::string(64, 'a') + "', 'plain', 1000000, '" +
                      std::string(1000000, 'x') + "'); INSERT INTO candidates VALUES ('" +
                      std::string(64, 'b') + "', 'cpp', 'unused', '2026')")
                         .c_str());
  const CompactResult result = CompactDatabase(path);
  CHECK((result.texts == 1 && result.candidates == 1));
  CHECK(result.bytes_after < result.bytes_before - 900'000);
  for (const DatabaseFinding& f : CheckDatabase(path, {})) CHECK(f.ok);
  Store store = Store::Open(path, OpenMode::kRead);
  CHECK(store.FindEpisode(episode).start_source == "start kernel");
  CHECK(store.LoadTurn(episode, 1)->token_ids == SampleTurn(1, 1).token_ids);
  CHECK(CompactDatabase(path).texts == 0);
}

TEST_CASE("migrate keeps a copy of the old file") {
  TemporaryFolder folder;
  const fs::path path = folder / "old.db";
  fs::copy_file(SourceFolder() / "tests/trajectories/data/v2.db", path);
  const MigrateResult result = MigrateDatabase(path, true);
  CHECK((result.from == 2 && result.to == kSchemaVersion));
  CHECK(result.backup == path.string() + ".v2");
  CHECK(Look(result.backup).QueryInteger("PRAGMA user_version") == 2);
  CHECK(Look(path).QueryInteger("PRAGMA user_version") == kSchemaVersion);
  CHECK(MigrateDatabase(path, true).backup.empty());  // nothing to do
}

}  // namespace
}  // namespace kevin
