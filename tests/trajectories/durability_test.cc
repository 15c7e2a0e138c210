// What survives: kill -9, two writers at once, a full disk, a file that is removed.

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

#include "env/error.h"
#include "tests/catch.h"
#include "tests/trajectories/sample_records.h"

namespace kevin {
namespace {

// Runs `body` in a child process and returns its exit status (128 + signal if killed). 99: it threw.
class Child {
 public:
  explicit Child(const std::function<int()>& body) : pid_(fork()) {
    if (pid_ != 0) return;
    try {
      _exit(body());
    } catch (...) {
      _exit(99);
    }
  }
  void Kill() const { kill(pid_, SIGKILL); }
  int Wait() const {
    int status = 0;
    waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_;
};

void CheckWhole(const std::filesystem::path& path) {
  Database database = Look(path);
  CHECK(database.QueryText("PRAGMA integrity_check") == "ok");
  Statement broken_references = database.Prepare("PRAGMA foreign_key_check");
  CHECK_FALSE(broken_references.Step());
  // Every turn has its verdict, and every verdict its two samples.
  CHECK(database.QueryInteger("SELECT count(*) FROM turns") ==
        database.QueryInteger("SELECT count(*) FROM turn_results"));
  CHECK(database.QueryInteger("SELECT count(*) * 2 FROM evaluations") ==
        database.QueryInteger("SELECT count(*) FROM samples"));
}

TEST_CASE("a kill at any moment loses at most the turn in flight") {
  TemporaryFolder folder;
  const auto path = folder / "kevin.db";
  for (int round = 0; round < 8; ++round) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const Child child([&] {
      Store store = Store::Open(path, OpenMode::kCreate);
      const std::string episode = BeginSample(store);
      for (int turn = 1;; ++turn) {
        store.AppendTurn(episode, SampleTurn(turn, 1.5));
        if (write(ends[1], "x", 1) != 1) return 1;  // "this turn is safe"
      }
      return 0;
    });
    close(ends[1]);
    char byte;
    int64_t acknowledged = 0;
    while (acknowledged < 3 && read(ends[0], &byte, 1) == 1) ++acknowledged;
    std::this_thread::sleep_for(std::chrono::microseconds(700 * round));
    child.Kill();
    CHECK(child.Wait() == 128 + SIGKILL);
    while (read(ends[0], &byte, 1) == 1) ++acknowledged;
    close(ends[0]);

    Store store = Store::Open(path, OpenMode::kWrite);
    const EpisodeRecord episode = store.ListEpisodes(1).at(0);
    CHECK(episode.turns >= acknowledged);
    CHECK(episode.turns <= acknowledged + 1);  // stored, and killed before it could say so
    CHECK(episode.state == EpisodeState::kInterrupted);
    CheckWhole(path);
    const std::string run = store.BeginRun(SampleRun());  // and it can go on
    store.ResumeEpisode(episode.id, run, 1);
    store.AppendTurn(episode.id, SampleTurn(episode.turns + 1, 1.5));
    store.FinishEpisode(episode.id, {});
  }
}

TEST_CASE("processes that make and write one database at once all finish") {
  TemporaryFolder folder;
  const auto path = folder / "kevin.db";
  const auto work = [&] {
    Store store = Store::Open(path, OpenMode::kCreate);
    const std::string episode = BeginSample(store);
    for (int turn = 1; turn <= 15; ++turn) store.AppendTurn(episode, SampleTurn(turn, 1.5));
    store.FinishEpisode(episode, {});
    return 0;
  };
  const Child children[] = {Child(work), Child(work), Child(work), Child(work)};
  for (const Child& child : children) CHECK(child.Wait() == 0);
  Store store = Store::Open(path, OpenMode::kRead);
  const auto episodes = store.ListEpisodes(10);
  CHECK(episodes.size() == 4);
  for (const auto& episode : episodes) CHECK((episode.turns == 15 && episode.state == EpisodeState::kDone));
  CheckWhole(path);
}

TEST_CASE("threads share one store") {
  TemporaryFolder folder;
  Store store = Store::Open(folder / "kevin.db", OpenMode::kCreate);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const std::string episode = BeginSample(store);
      for (int turn = 1; turn <= 10; ++turn) store.AppendTurn(episode, SampleTurn(turn, 1.5));
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(Look(folder / "kevin.db").QueryInteger("SELECT count(*) FROM turns") == 40);
}

TEST_CASE("an episode in another process's hands is not continued") {
  TemporaryFolder folder;
  const auto path = folder / "kevin.db";
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const Child child([&] {
    Store store = Store::Open(path, OpenMode::kCreate);
    BeginSample(store);
    if (write(ends[1], "x", 1) != 1) return 1;
    pause();
    return 0;
  });
  char byte;
  REQUIRE(read(ends[0], &byte, 1) == 1);
  close(ends[0]);
  close(ends[1]);
  {
    Store store = Store::Open(path, OpenMode::kWrite);
    const EpisodeRecord episode = store.ListEpisodes(1).at(0);
    CHECK(episode.state == EpisodeState::kRunning);
    CHECK_THROWS_AS(store.ResumeEpisode(episode.id, store.BeginRun(SampleRun()), 1), Error);
  }
  child.Kill();
  child.Wait();
}

TEST_CASE("a full disk costs the turn in flight and nothing else") {
  TemporaryFolder folder;
  const auto path = folder / "kevin.db";
  // The limit on a file's size stands in for a full disk: the write fails the same way.
  const Child child([&] {
    signal(SIGXFSZ, SIG_IGN);
    Store store = Store::Open(path, OpenMode::kCreate);
    const std::string episode = BeginSample(store);
    const rlimit limit{512 * 1024, 512 * 1024};
    setrlimit(RLIMIT_FSIZE, &limit);
    TurnRecord turn = SampleTurn(1, 1.5);
    for (turn.turn = 1; turn.turn < 1000; ++turn.turn) {
      turn.reply = std::string(20'000, 'r');
      try {
        store.AppendTurn(episode, turn);
      } catch (const Error& error) {
        const bool said = std::string(error.what()).find("disk full") != std::string::npos;
        return error.code() == ExitCode::kBroken && said ? turn.turn : 98;
      }
    }
    return 97;
  });
  const int failed_turn = child.Wait();
  REQUIRE(failed_turn > 1);
  REQUIRE(failed_turn < 97);
  CheckWhole(path);
  Store store = Store::Open(path, OpenMode::kWrite);
  const EpisodeRecord episode = store.ListEpisodes(1).at(0);
  CHECK(episode.turns == failed_turn - 1);
  store.AppendTurn(episode.id, SampleTurn(failed_turn, 1.5));
  CheckWhole(path);
}

TEST_CASE("SQLite's own 'full' is told as such and rolled back") {
  TemporaryFolder folder;
  Database database(folder / "small.db", Database::Access::kCreate, 1000);
  database.PrepareForWriting();
  database.Execute("CREATE TABLE t(x); PRAGMA max_page_count = 10");
  Statement insert = database.Prepare("INSERT INTO t VALUES (?)");
  std::string message;
  try {
    Transaction transaction(database);
    for (int i = 0; i < 100; ++i) insert.Bind(std::string(4000, 'x')).Run();
    transaction.Commit();
  } catch (const Error& error) {
    message = error.what();
    CHECK(error.code() == ExitCode::kBroken);
  }
  CHECK(message.find("disk full") != std::string::npos);
  insert.Reset();
  CHECK_FALSE(database.InTransaction());
  CHECK(database.QueryInteger("SELECT count(*) FROM t") == 0);
}

TEST_CASE("a database deleted while in use is noticed") {
  TemporaryFolder folder;
  Store store = Store::Open(folder / "kevin.db", OpenMode::kCreate);
  const std::string episode = BeginSample(store);
  std::filesystem::remove(folder / "kevin.db");
  try {
    store.AppendTurn(episode, SampleTurn(1, 1.5));
    FAIL("went unnoticed");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBroken);
  }
}

}  // namespace
}  // namespace kevin
