// What only a server can do to us.

#include "trajectories/postgres.h"

#include <thread>

#include "env/error.h"
#include "tests/catch.h"
#include "tests/trajectories/postgres_server.h"
#include "tests/trajectories/sample_records.h"
#include "tests/trajectories/test_database.h"
#include "trajectories/schema.h"

namespace kevin {
namespace {

std::string OpenError(const std::string& address, OpenMode mode) {
  try {
    Store::Open(address, mode);
    return "opened";
  } catch (const Error& error) {
    CHECK_FALSE(error.next_step().empty());
    return std::to_string(static_cast<int>(error.code())) + ": " + error.what();
  }
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("addresses that lead nowhere are told apart") {
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

}  // namespace
}  // namespace kevin
