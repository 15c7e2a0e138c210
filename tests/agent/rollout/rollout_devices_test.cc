// Collections on several devices and by several workers; the gate and the tally that they share.

#include <atomic>
#include <future>
#include <set>

#include "agent/rollout/exclusive_gate.h"
#include "env/device_pool.h"
#include "env/error.h"
#include "tests/agent/rollout/rollout_fixture.h"
#include "tests/catch.h"
#include "tests/trajectories/sample_records.h"

namespace kevin {
namespace {

// One item on a device of two threads, up to its first turn.
void BeginOnTwoThreads(RolloutFixture* f) {
  f->options.parallel = 1;
  f->environment.facts.device = "cpu: Fake, 2 threads";
  f->hooks.on_turn = [f](const TurnRecord&, const EpisodeRecord&) { f->drain = true; };
  CHECK_FALSE(f->Run().complete);
  f->drain = false;
  f->hooks.on_turn = nullptr;
}

}  // namespace

TEST_CASE("a rollout ends where only items of another model of device are left, and names it") {
  RolloutFixture f(3);
  BeginOnTwoThreads(&f);
  f.environment.facts.device = "cpu: Fake, 4 threads";
  Database database(f.folder.path() / "kevin.db", Database::Access::kReadWrite, 1000);
  SECTION("it waits") {}
  SECTION("its worker has ended, here or elsewhere") {
    database.Execute(
        "UPDATE work_items SET state = 'leased', lease_owner = 'x', lease_until = '2000-01-01T00:00:00.000Z' "
        "WHERE episode IS NOT NULL");
  }
  SECTION("others work elsewhere") { f.options.devices_of_others = {"Fake, 4 threads", "Fake, 8 threads"}; }
  const RolloutEnd end = f.Run();
  CHECK_FALSE(end.complete);
  CHECK(end.left_to == std::vector<std::string>{"Fake, 2 threads"});
  CHECK((f.Counts().waiting + f.Counts().leased == 1 && f.Counts().done == 2));
  f.environment.facts.device = "cpu: Fake, 2 threads";
  const RolloutEnd last = f.Run();
  CHECK((last.complete && last.left_to.empty()));
}

TEST_CASE("items of a model of device on which others work are waited for") {
  RolloutFixture f(3);
  BeginOnTwoThreads(&f);
  f.environment.facts.device = "cpu: Fake, 4 threads";
  f.options.devices_of_others = {"Fake, 2 threads", "Fake, 4 threads"};
  auto run = std::async(std::launch::async, [&] { return f.Run(); });
  CHECK(run.wait_for(std::chrono::seconds(12)) == std::future_status::timeout);
  CHECK(f.Counts().done == 2);
  f.drain = true;
  const RolloutEnd end = run.get();
  CHECK_FALSE(end.complete);
  CHECK(end.left_to.empty());
}

TEST_CASE("items of another model of device are waited for while somebody works") {
  RolloutFixture f(3);
  WorkQueue queue(f.store);
  LeaseTerms there, here;
  there.collection = here.collection =
      queue.Open("key", "{}", EpisodesOf(f.spec), {ToRecord(f.problem)}, {}, false).collection;
  there.device = "Fake, 2 threads", here.device = "Fake, 4 threads";
  const auto begin = [&] {
    const WorkItem item = queue.Take(there).value();
    EpisodeRecord episode = SampleEpisode(there.collection);
    episode.device = "cpu: " + there.device, episode.lease = item.lease;
    f.store.BeginEpisode(episode, ToRecord(f.problem));
    return item.lease;
  };
  const Lease first = begin(), second = begin();
  queue.GiveBack(first);
  CHECK(queue.LeftToOthers(here).empty());  // the third is of nobody, the second is worked on
  queue.Finish(queue.Take(here)->lease);
  CHECK(queue.LeftToOthers(here).empty());
  queue.GiveBack(second);
  CHECK(queue.LeftToOthers(here) == std::vector<std::string>{there.device});
  CHECK(queue.LeftToOthers(there).empty());
  CHECK(queue.Count(here.collection).waiting == 2);
}

TEST_CASE("an episode that runs is shown with the turns that are stored, also those of an earlier worker") {
  RolloutFixture f(1);
  f.options.parallel = 1;
  f.hooks.on_turn = [&](const TurnRecord& turn, const EpisodeRecord&) { f.drain = turn.turn == 2; };
  f.Run();
  f.drain = false;
  f.hooks.on_turn = nullptr;
  std::atomic<int> stored{-1};
  f.hooks.on_progress = [&](const RolloutStatus& status) {
    for (const RunningEpisode& episode : status.running) stored = episode.stored;
  };
  int in_third = -1;
  f.environment.before_evaluate = [&](int) {
    for (int wait = 0; in_third < 0 && stored < 2 && wait < 1000; ++wait)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (in_third < 0) in_third = stored;
  };
  CHECK(f.Run().complete);
  CHECK(in_third == 2);
}

TEST_CASE("all devices of a pool give their memory back") {
  struct Counting : testing::FakeEnvironment {
    explicit Counting(int* count) : count_(count) {}
    void ReleaseMemory() override { ++*count_; }
    int* count_;
  };
  int first = 0, second = 0;
  std::vector<std::unique_ptr<Environment>> devices;
  devices.push_back(std::make_unique<Counting>(&first));
  devices.push_back(std::make_unique<Counting>(&second));
  DevicePool pool(std::move(devices));
  pool.ReleaseMemory();
  CHECK(first == 1);
  CHECK(second == 1);
}

TEST_CASE("devices of one model share the work; of two models they do not mix") {
  const auto device = [](const std::string& name) {
    auto environment = std::make_unique<testing::FakeEnvironment>();
    environment->facts.device = name;
    return environment;
  };
  std::vector<std::unique_ptr<Environment>> devices;
  devices.push_back(device("cuda:0: Fake"));
  devices.push_back(device("cuda:3: Fake"));
  auto* const first = static_cast<testing::FakeEnvironment*>(devices[0].get());
  auto* const second = static_cast<testing::FakeEnvironment*>(devices[1].get());
  DevicePool pool(std::move(devices));
  CHECK(pool.Facts().device == "cuda:0, cuda:3: Fake");
  CHECK(DeviceModel(pool.Facts().device) == "Fake");
  std::atomic<int> inside{0}, together{0};
  const auto wait = [&](int) {
    together = std::max(together.load(), ++inside);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    --inside;
  };
  first->before_evaluate = second->before_evaluate = wait;
  const Problem problem = testing::ReluProblem();
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&] { pool.Evaluate(problem, {"cpp", testing::FakeSource("wrong")}, {}); });
  }
  for (auto& thread : threads) thread.join();
  CHECK((first->calls.size() == 3 && second->calls.size() == 3));
  CHECK(together == 2);
  pool.Evaluate(problem, {"cpp", testing::FakeSource("wrong again")}, {});
  CHECK(second->calls.size() == 4);  // which had the problem last

  std::vector<std::unique_ptr<Environment>> mixed;
  mixed.push_back(device("cuda:0: Fake"));
  mixed.push_back(device("cuda:1: Other"));
  CHECK_THROWS_AS(DevicePool(std::move(mixed)), Error);
}

// --- The parts: gate and tally ---

namespace {

template <typename Act>
auto Elsewhere(const Act& act) {
  return std::async(std::launch::async, act).get();
}

}  // namespace

TEST_CASE("exclusive execution admits one thread, and the others wait for its end") {
  ExclusiveGate gate;
  const CancelToken drained{true}, open{false};
  REQUIRE(gate.Enter(false, open));
  CHECK_FALSE(Elsewhere([&] { return gate.Enter(true, open); }));  // one works in shared execution
  gate.Leave(false);
  REQUIRE(gate.Enter(true, open));
  CHECK_FALSE(Elsewhere([&] { return gate.Enter(true, open); }));
  CHECK_FALSE(Elsewhere([&] { return gate.Enter(false, drained); }));
  Elsewhere([&] { return gate.EndExclusive(), true; });  // only the holder ends it
  CHECK_FALSE(Elsewhere([&] { return gate.Enter(false, drained); }));
  gate.EndExclusive();
  CHECK(Elsewhere([&] { return gate.Enter(false, drained); }));
  CHECK_FALSE(Elsewhere([&] { return gate.Enter(true, open); }));  // two are in
  gate.Leave(true), gate.Leave(false);
  CHECK(gate.Enter(true, open));
}

TEST_CASE("turns add to what was counted last; one that took an earlier verdict held no device") {
  RolloutTally tally;
  CollectionUsage counted;
  counted.turns = 10, counted.completion_tokens = 100, counted.device_s = 5, counted.dollars = 1;
  tally.Recounted(counted, {});
  TurnRecord turn = SampleTurn(1, 1.5);
  turn.usage.prompt_tokens = 7, turn.usage.completion_tokens = 20, turn.cost_usd = 0.25;
  turn.evaluation.cached_from.clear(), turn.evaluation.device_s = 2;
  tally.Add(turn);
  turn.evaluation.cached_from = "another";
  tally.Add(turn);
  const CollectionUsage usage = tally.Usage();
  CHECK(usage.turns == 12);
  CHECK(usage.prompt_tokens == counted.prompt_tokens + 14);
  CHECK(usage.completion_tokens == 140);
  CHECK(usage.device_s == 7);
  CHECK(usage.dollars == 1.5);
  const RolloutTotals totals = tally.Totals();
  CHECK(totals.turns == 2);
  CHECK(totals.device_s == 2);
  CHECK(totals.usage.turns == 12);
}

}  // namespace kevin
