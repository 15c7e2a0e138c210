// What only a server can do to us.

#include <set>
#include <thread>

#include "env/error.h"
#include "tests/catch.h"
#include "tests/trajectories/postgres_server.h"
#include "tests/trajectories/sample_records.h"
#include "tests/trajectories/test_database.h"
#include "trajectories/catalog.h"
#include "trajectories/engine.h"
#include "trajectories/maintain.h"

namespace kevin {
namespace {

TEST_CASE("unreachable addresses have different messages") {
  const TestDatabase test;
  CHECK(Contains(OpenError("postgresql://kevin:secret@localhost:1/x", OpenMode::kCreate), "4: "));
  CHECK_FALSE(Contains(OpenError("postgresql://kevin:secret@localhost:1/x", OpenMode::kCreate), "secret"));
  std::string missing = test.address();
  missing.insert(missing.find('?'), "none");
  CHECK(Contains(OpenError(missing, OpenMode::kCreate), "2: "));
  CHECK(Contains(OpenError(test.address(), OpenMode::kRead), "2: "));
  CHECK(Contains(OpenError(test.address(), OpenMode::kWrite), "no Kevin database is there yet"));
  CHECK(OpenError(test.address(), OpenMode::kCreate) == "opened");
  CHECK(OpenError(test.address(), OpenMode::kRead) == "opened");
  test.Look().Execute("UPDATE kevin_format SET version = 99");
  CHECK(Contains(OpenError(test.address(), OpenMode::kRead), "database is newer (v99)"));
}

TEST_CASE("programs that make the tables at once all find them") {
  const TestDatabase test;
  std::vector<std::thread> threads;
  std::atomic<int> broken{0};
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&] {
      try {
        BeginSample(*std::make_unique<Store>(test.Open(OpenMode::kCreate)));
      } catch (const std::exception&) {
        ++broken;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(broken == 0);
  CHECK(test.Look().QueryInteger("SELECT count(*) FROM episodes") == 6);
}

TEST_CASE("what was stored survives the server's crash, and the next write connects anew") {
  const TestDatabase test;
  Store store = test.Open(OpenMode::kCreate);
  const std::string episode = BeginSample(store);
  store.AppendTurn(episode, SampleTurn(1, 1.5));
  PostgresServer::Get().Crash();
  try {
    store.AppendTurn(episode, SampleTurn(2, 1.5));
    FAIL("the server was gone");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBroken);
  }
  PostgresServer::Get().Start();
  store.AppendTurn(episode, SampleTurn(2, 1.5));
  CHECK(store.LoadTurns(episode).size() == 2);
}

TEST_CASE("writers that meet on the same texts in different order all finish") {
  const TestDatabase test;
  std::vector<std::string> episodes;
  {
    Store store = test.Open(OpenMode::kCreate);
    for (int i = 0; i < 4; ++i) episodes.push_back(BeginSample(store));
  }
  std::vector<std::thread> threads;
  std::atomic<int> broken{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      try {
        Store store = test.Open(OpenMode::kWrite);
        for (int turn = 1; turn <= 40; ++turn) {
          TurnRecord record = SampleTurn(turn, 1.5);
          record.messages.clear();
          for (int m = 0; m < 6; ++m) {
            const int which = i % 2 == 0 ? m : 5 - m;
            record.messages.push_back({"user", "turn " + std::to_string(turn) + " " + std::to_string(which)});
          }
          store.AppendTurn(episodes[static_cast<size_t>(i)], record);
        }
      } catch (const std::exception&) {
        ++broken;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(broken == 0);
  CHECK(test.Look().QueryInteger("SELECT count(*) FROM turns") == 160);
}

TEST_CASE("what is wrong in a batch is told exactly, and the rest of it is kept") {
  const TestDatabase test;
  Store store = test.Open(OpenMode::kCreate);
  const std::string episode = BeginSample(store);
  const std::string run = store.ListRuns().front().id;
  const auto append = [&](const std::string& to, TurnRecord turn) {
    turn.run = run;
    store.AppendTurn(to, turn);
  };
  append(episode, SampleTurn(1, 1.5));
  std::atomic<int> unknown{0}, again{0}, kept{0}, other{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int n = 0; n < 12; ++n) {
        try {
          if (n % 3 == 0) append("01KNOSUCHEPISODE", SampleTurn(1, 1.5));
          if (n % 3 == 1) append(episode, SampleTurn(1, 1.5));
          if (n % 3 == 2) append(episode, SampleTurn(100 * i + n, 1.5));
          ++kept;
        } catch (const Error& error) {
          const bool is_unknown = Contains(error.what(), "no episode '01KNOSUCHEPISODE'");
          const bool is_again = Contains(error.what(), "has a turn 1 already");
          ++(is_unknown ? unknown : is_again ? again : other);
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK((unknown == 32 && again == 32 && kept == 32 && other == 0));
  CHECK(test.Look().QueryInteger("SELECT count(*) FROM turns") == 33);
}

TEST_CASE("a text that came with a write that failed is stored with the next one") {
  const TestDatabase test;
  Store store = test.Open(OpenMode::kCreate);
  const std::string episode = BeginSample(store);
  store.AppendTurn(episode, SampleTurn(1, 1.5));
  TurnRecord turn = SampleTurn(1, 1.5);
  turn.messages = {{"user", "a text that nobody has sent yet"}};
  CHECK_THROWS_AS(store.AppendTurn(episode, turn), Error);
  turn.turn = 2;
  store.AppendTurn(episode, turn);
  REQUIRE(store.LoadTurn(episode, 2));
  CHECK(store.LoadTurn(episode, 2)->messages.front().content == "a text that nobody has sent yet");
}

TEST_CASE("the server's tables have the columns of schema.sql") {
  const TestDatabase test;
  test.Open(OpenMode::kCreate);
  TemporaryFolder folder;
  Store::Open(folder / "kevin.db", OpenMode::kCreate);
  Database file = Look(folder / "kevin.db"), server = test.Look();
  std::string in_file, on_server;
  Statement a = file.Prepare(
      "SELECT s.name || '.' || c.name FROM sqlite_schema s JOIN pragma_table_info(s.name) c "
      "WHERE s.type IN ('table', 'view') AND s.name NOT LIKE 'sqlite%' ORDER BY 1");
  while (a.Step()) in_file += a.Text(0) + "\n";
  Statement b = server.Prepare(
      "SELECT (table_name || '.' || column_name) COLLATE \"C\" FROM information_schema.columns "
      "WHERE table_schema = 'public' AND table_name <> 'kevin_format' ORDER BY 1");
  while (b.Step()) on_server += b.Text(0) + "\n";
  CHECK(in_file.size() > 1000);
  CHECK(in_file == on_server);
}

// All rows of all tables, in an order of their own.
std::multiset<std::string> Rows(const std::filesystem::path& path) {
  Database database = Look(path);
  std::multiset<std::string> rows;
  for (const std::string& table : SchemaTables()) {
    const std::vector<ColumnInfo> columns = ColumnsOf(database, table);
    Statement row = database.Prepare("SELECT " + QuotedNames(columns) + " FROM " + table);
    while (row.Step()) {
      std::string text = table;
      for (size_t i = 0; i < columns.size(); ++i) {
        const int c = static_cast<int>(i);
        text += row.IsNull(c) ? "|-" : "|" + columns[i].name + "=" + row.Text(c);
      }
      rows.insert(text);
    }
  }
  return rows;
}

// Two episodes with requests, a repeated verdict and one that is overridden.
std::string FillFile(const std::filesystem::path& path) {
  Store store = Store::Open(path, OpenMode::kCreate);
  BeginSample(store);
  const std::string episode = BeginSample(store);
  const std::string first = store.AppendTurn(episode, SampleTurn(1, 1.0 / 3));
  TurnRecord repeat = SampleTurn(2, 1e-300);
  repeat.evaluation.cached_from = first;
  repeat.feedback = "it's \\ 100 % 'quoted' \u00e9\n";
  store.AppendTurn(episode, repeat);
  EvaluationRecord audit = SampleEvaluation("kernel 1", 1);
  audit.purpose = "audit";
  store.AppendEvaluation(episode, 1, audit, {first});
  RequestRecord request;
  request.provider = "openai", request.url = "http://x", request.model = "m", request.request = "{}";
  request.outcome = "sent", request.response = std::string("a\0b", 3);
  store.BeginRequest(episode, request);
  store.FinishEpisode(episode, {EpisodeState::kDone, "", 1, 1.25, 1, 2, "best.cpp", 3.5});
  return episode;
}

TEST_CASE("a file goes to the server and comes back as it was") {
  const TestDatabase test;
  TemporaryFolder folder;
  const std::string episode = FillFile(folder / "a.db");
  {
    Store server = test.Open(OpenMode::kCreate);
    const MergeResult first = server.Import(folder / "a.db");
    CHECK((first.runs == 2 && first.episodes == 2 && first.turns == 2 && first.evaluations == 3));
    const MergeResult again = server.Import(folder / "a.db");
    CHECK((again.runs == 0 && again.episodes == 0 && again.turns == 0 && again.evaluations == 0));
    CHECK((again.continued == 0 && again.conflicts.empty()));
    CHECK_THROWS_AS(server.Import(test.address()), Error);
    CHECK(server.LoadTurn(episode, 1)->token_ids == SampleTurn(1, 1).token_ids);
  }
  Store back = Store::Open(folder / "b.db", OpenMode::kCreate);
  CHECK(back.Import(test.address()).turns == 2);
  CHECK(back.Import(test.address()).turns == 0);
  CHECK(Rows(folder / "a.db").size() > 20);
  CHECK(Rows(folder / "a.db") == Rows(folder / "b.db"));
}

TEST_CASE("an episode that went on in a file goes on upon the server") {
  const TestDatabase test;
  TemporaryFolder folder;
  const std::string episode = FillFile(folder / "a.db");
  Store server = test.Open(OpenMode::kCreate);
  server.Import(folder / "a.db");
  {
    Store file = Store::Open(folder / "a.db", OpenMode::kWrite);
    file.ResumeEpisode(episode, file.BeginRun(SampleRun()), 1);
    file.AppendTurn(episode, SampleTurn(3, 7));
    file.FinishEpisode(episode, {EpisodeState::kDone, "", 3, 7, 6, 8, "best.cpp", 5});
  }
  const MergeResult result = server.Import(folder / "a.db");
  CHECK((result.turns == 1 && result.runs == 1 && result.continued == 1));
  CHECK((server.FindEpisode(episode).best_speedup == 7 && server.FindEpisode(episode).turns == 3));
  Look(folder / "a.db").Execute("UPDATE turns SET created_at = '2030' WHERE turn = 3");
  CHECK(server.Import(folder / "a.db").conflicts == std::vector<std::string>{episode});
}

const DatabaseFinding& Find(const std::vector<DatabaseFinding>& findings, const std::string& name) {
  for (const DatabaseFinding& f : findings) {
    if (f.name == name) return f;
  }
  FAIL("no finding " + name);
  return findings.front();
}

TEST_CASE("check finds what is wrong on a server, compact deletes what nothing refers to") {
  const TestDatabase test;
  TemporaryFolder folder;
  FillFile(folder / "a.db");
  test.Open(OpenMode::kCreate).Import(folder / "a.db");
  for (const DatabaseFinding& f : CheckDatabase(test.address(), {})) {
    INFO(f.name << ": " << f.found);
    CHECK((f.ok && f.fix.empty()));
  }
  CHECK(Contains(Find(CheckDatabase(test.address(), {}), "rows").found, "2 turns, 3 evaluations"));
  SECTION("a text that nobody uses") {
    test.Look().Execute(
        "INSERT INTO blobs VALUES (repeat('a', 64), 'plain', 3, 'xyz'); "
        "INSERT INTO candidates VALUES (repeat('b', 64), 'cpp', 'unused', '2026')");
    CHECK(Contains(Find(CheckDatabase(test.address(), {}), "unused").found, "1 texts and 1 kernels"));
    const CompactResult result = CompactDatabase(test.address());
    CHECK((result.texts == 1 && result.candidates == 1 && result.bytes_after > 0));
    CHECK(CompactDatabase(test.address()).texts == 0);
    CHECK(Find(CheckDatabase(test.address(), {}), "texts").ok);
  }
  SECTION("a text that was edited") {
    test.Look().Execute("UPDATE blobs SET body = 'other' WHERE codec = 'plain'");
    CHECK_FALSE(Find(CheckDatabase(test.address(), {}), "texts").ok);
  }
  SECTION("rows that refer to nothing") {
    test.Look().Execute("SET session_replication_role = replica; DELETE FROM evaluations WHERE turn = 2");
    CHECK_FALSE(Find(CheckDatabase(test.address(), {}), "references").ok);
    CHECK_FALSE(Find(CheckDatabase(test.address(), {}), "verdicts").ok);
  }
  SECTION("a table that is gone") {
    test.Look().Execute("DROP TABLE baselines");
    const auto findings = CheckDatabase(test.address(), {});
    CHECK((findings.size() == 1 && Contains(findings[0].found, "baselines is missing")));
  }
}

}  // namespace
}  // namespace kevin
