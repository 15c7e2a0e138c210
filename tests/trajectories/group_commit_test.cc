// Many threads, one fsync; each write by itself.

#include "trajectories/group_commit.h"

#include <atomic>
#include <thread>

#include "env/error.h"
#include "tests/catch.h"
#include "tests/trajectories/sample_records.h"
#include "tests/trajectories/test_database.h"

namespace kevin {
namespace {

TEST_CASE("writes that wait for a commit go into the next one together") {
  std::vector<size_t> batches;
  std::atomic<bool> let_go{false};
  std::atomic<int> commits{0}, done{0};
  GroupCommit commit([&](const std::vector<PendingWrite*>& writes) {
    ++commits;
    while (!let_go) std::this_thread::yield();
    batches.push_back(writes.size());
    for (PendingWrite* write : writes) (*write->work)();
  });
  std::vector<std::thread> threads;
  threads.emplace_back([&] { commit.Run([&] { ++done; }); });
  while (commits == 0) std::this_thread::yield();
  for (int i = 0; i < 9; ++i) threads.emplace_back([&] { commit.Run([&] { ++done; }); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // so that all of them wait
  let_go = true;
  for (auto& thread : threads) thread.join();
  CHECK(done == 10);
  CHECK(batches == std::vector<size_t>{1, 9});
}

TEST_CASE("a write that fails leaves the others of its transaction alone") {
  TestDatabase test;
  Store store = test.Open(OpenMode::kCreate);
  const std::string episode = BeginSample(store);
  store.AppendTurn(episode, SampleTurn(1, 1.5));
  std::atomic<int> failed{0}, kept{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 12; ++i) {
    threads.emplace_back([&, i] {
      for (int n = 0; n < 10; ++n) {
        try {
          store.AppendTurn(episode, SampleTurn(i % 3 == 0 ? 1 : 1000 * i + n, 1.5));  // turn 1 is there
          ++kept;
        } catch (const Error& error) {
          if (error.code() == ExitCode::kBadRequest) ++failed;
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(failed == 40);
  CHECK(kept == 80);
  Database database = test.Look();
  CHECK(database.QueryInteger("SELECT count(*) FROM turns") == 81);
  CHECK(database.QueryInteger("SELECT count(*) FROM evaluations") == 81);
  CHECK(database.QueryInteger("SELECT count(*) FROM samples") == 162);
}

}  // namespace
}  // namespace kevin
