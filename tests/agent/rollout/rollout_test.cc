#include "agent/rollout/rollout.h"

#include <atomic>
#include <future>
#include <set>

#include "agent/records.h"
#include "agent/rollout/exclusive_gate.h"
#include "env/device_pool.h"
#include "env/error.h"
#include "env/problem/problem.h"
#include "tests/catch.h"
#include "tests/support/fakes.h"
#include "tests/trajectories/sample_records.h"
#include "trajectories/database.h"

namespace kevin {
namespace {

// A collection of `episodes` episodes at one problem by a policy that answers any number of them.
struct Fixture {
  testing::TempFolder folder;
  Store store = Store::Open(folder.path() / "kevin.db", OpenMode::kCreate);
  Problem problem = testing::ReluProblem();
  testing::FakeEnvironment environment;
  testing::SteadyPolicy policy;
  Policy* answers = &policy;
  RolloutSources sources;
  RolloutOptions options;
  RolloutHooks hooks;
  CollectionSpec spec;
  CancelToken drain{false}, stop{false};
  std::vector<std::string> faults;
  std::set<std::string> begun;
  int resumed = 0, turns = 0, ended = 0;

  explicit Fixture(int episodes = 4) {
    spec.tasks = {{problem.id, problem.content_hash}};
    spec.policies = {"steady"};
    spec.episodes = episodes;
    spec.turns = 4;
    spec.kind = "cpp";
    sources.problem = [this](const EpisodeSpec&) -> const Problem& { return problem; };
    sources.policy = [this](const std::string&) -> Policy& { return *answers; };
    options.episode.output = folder.path() / "out";
    options.parallel = 3;
    options.lease_s = 30;
    options.rest_s = 0.02;
    hooks.on_begin = [this](const EpisodeRecord& episode, const EpisodeSpec&, bool again) {
      begun.insert(episode.id);
      resumed += again ? 1 : 0;
    };
    hooks.on_turn = [this](const TurnRecord&, const EpisodeRecord&) { ++turns; };
    hooks.on_episode = [this](const EpisodeRecord&) { ++ended; };
    hooks.on_fault = [this](const EpisodeSpec&, const std::string& error, bool parked) {
      faults.push_back((parked ? "parked: " : "") + error);
    };
  }

  RolloutEnd Run() {
    const auto opened =
        WorkQueue(store).Open(KeyOf(spec), ToJson(spec), EpisodesOf(spec), {ToRecord(problem)}, {}, false);
    options.collection = opened.collection;
    options.worker_run = opened.worker_run;
    return RunRollout(store, environment, sources, options, hooks, &drain, &stop);
  }
  QueueCounts Counts() { return WorkQueue(store).Count(options.collection); }
  int64_t Query(const char* sql) {
    return Database(folder.path() / "kevin.db", Database::Access::kReadOnly, 1000).QueryInteger(sql);
  }
};

}  // namespace

TEST_CASE("a collection runs all its episodes, each with a seed of its own, and is finished") {
  Fixture f;
  const RolloutEnd end = f.Run();
  CHECK((end.complete && end.out_of.empty()));
  CHECK((f.begun.size() == 4 && f.ended == 4 && f.turns == 16));
  CHECK((f.Counts().done == 4 && f.Counts().waiting + f.Counts().leased + f.Counts().parked == 0));
  CHECK(f.Query("SELECT count(DISTINCT seed) FROM episodes WHERE state = 'done'") == 4);
  CHECK(f.Query("SELECT count(*) FROM episodes e JOIN collections c ON c.run = e.run") == 4);
  const auto results = WorkQueue(f.store).Results(f.options.collection);
  REQUIRE(results.size() == 1);
  CHECK((results[0].problem == "level1/19" && results[0].policy == "steady" && results[0].done == 4));
  CHECK(results[0].best_speedup.value_or(0) > 0.8);

  SECTION("the same request then begins anew, with the same seeds, and its kernels are known") {
    const std::string first = f.options.collection;
    f.environment.calls.clear();
    f.Run();
    CHECK(f.options.collection != first);
    CHECK(f.Query("SELECT count(DISTINCT seed) FROM episodes") == 4);
    CHECK(f.Query("SELECT count(*) FROM evaluations WHERE cached_from IS NOT NULL") > 4);
  }
}

TEST_CASE("episodes go in rounds over problems and policies") {
  CollectionSpec spec;
  spec.tasks = {{"level1/1", "a"}, {"level1/2", "b"}};
  spec.policies = {"x", "y"};
  spec.episodes = 2;
  spec.seed = 7;
  std::string order;
  std::set<uint64_t> seeds;
  for (const std::string& item : EpisodesOf(spec)) {
    const EpisodeSpec episode = EpisodeFromJson(item);
    order += episode.problem.back() + episode.policy + std::to_string(episode.number) + " ";
    seeds.insert(episode.seed);
  }
  CHECK(order == "1x0 1y0 2x0 2y0 1x1 1y1 2x1 2y1 ");
  CHECK(seeds.size() == 8);
  CHECK(ToJson(CollectionFromJson(ToJson(spec))) == ToJson(spec));
  const std::string key = KeyOf(spec);
  CHECK(ToJson(spec).find("precision") == std::string::npos);  // as earlier programs wrote it
  CollectionSpec narrow = spec;
  narrow.workload.precision = "bf16";
  CHECK(KeyOf(narrow) != key);
  CHECK(CollectionFromJson(ToJson(narrow)).workload.precision == "bf16");
  CollectionSpec tuned = spec;
  tuned.tune = 8;
  CHECK((KeyOf(tuned) != key && CollectionFromJson(ToJson(tuned)).tune == 8));
  spec.turns = 9;
  CHECK(KeyOf(spec) != key);
}

TEST_CASE("drained, the turns in hand are stored; the same request goes on at the first missing turn") {
  Fixture f;
  f.options.parallel = 2;
  f.hooks.on_turn = [&](const TurnRecord&, const EpisodeRecord&) { f.drain = ++f.turns >= 3; };
  CHECK_FALSE(f.Run().complete);
  const std::string collection = f.options.collection;
  CHECK(f.turns >= 3);
  CHECK(f.turns <= 8);
  CHECK((f.Counts().waiting == 4 && f.Counts().leased == 0));
  CHECK(f.Query("SELECT max(attempts) FROM work_items") == 0);
  const int before = f.turns;
  const size_t begun = f.begun.size();  // two, or three where one was confirming
  f.drain = false;
  f.hooks.on_turn = [&](const TurnRecord&, const EpisodeRecord&) { ++f.turns; };
  CHECK(f.Run().complete);
  CHECK(f.options.collection == collection);
  CHECK(f.resumed == static_cast<int>(begun));
  CHECK((begun >= 2 && begun <= 3));
  CHECK((f.turns == 16 && before < 16 && f.begun.size() == 4));
  CHECK(f.Query("SELECT count(*) FROM turns") == 16);
  CHECK(f.Query("SELECT count(*) FROM episodes WHERE turns_asked = 4 AND state = 'done'") == 4);
}

TEST_CASE("while an episode confirms its winner the next one begins, and not before") {
  using namespace std::chrono_literals;
  Fixture f(2);
  f.options.parallel = 1;
  std::mutex mutex;
  f.hooks.on_begin = [&](const EpisodeRecord& episode, const EpisodeSpec&, bool) {
    const std::lock_guard lock(mutex);
    f.begun.insert(episode.id);
  };
  const auto begun = [&] {
    const std::lock_guard lock(mutex);
    return f.begun.size();
  };
  size_t in_last_turn = 0, in_confirmation = 0;
  f.environment.before_evaluate = [&](int call) {
    if (call == 4) {
      std::this_thread::sleep_for(300ms);
      in_last_turn = begun();
    }
    for (int wait = 0; call == 5 && begun() < 2 && wait < 1000; ++wait) std::this_thread::sleep_for(10ms);
    if (call == 5) in_confirmation = begun();
  };
  CHECK(f.Run().complete);
  CHECK(in_last_turn == 1);
  CHECK(in_confirmation == 2);
  CHECK(f.Query("SELECT count(*) FROM evaluations WHERE purpose = 'confirm'") == 2);
}

TEST_CASE("one episode at a time announces the problem of the next one before its last turn") {
  Fixture f(3);
  f.options.parallel = 1;
  f.options.episode.workload.size = "small";
  size_t before_last = 0, in_last = 0;
  f.environment.before_evaluate = [&](int call) {
    if (call == 3) before_last = f.environment.expected.size();
    if (call == 4) in_last = f.environment.expected.size();
  };
  CHECK(f.Run().complete);
  CHECK((before_last == 0 && in_last == 1));
  CHECK(f.environment.expected ==
        std::vector<std::string>(2, "level1/19 cpp small"));  // none follows the last one

  SECTION("many keep the device busy") {
    Fixture many(3);
    many.options.parallel = 2;
    CHECK(many.Run().complete);
    CHECK(many.environment.expected.empty());
  }
}

TEST_CASE("stopped, the turn in hand is thrown away and the item goes back") {
  Fixture f(1);
  f.options.parallel = 1;
  f.environment.before_evaluate = [&](int call) {
    if (call != 2) return;
    f.stop = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
  };
  CHECK_FALSE(f.Run().complete);
  CHECK(f.Query("SELECT count(*) FROM turns") == 1);
  CHECK(f.Counts().waiting == 1);
  f.stop = false;
  f.environment.before_evaluate = nullptr;
  CHECK(f.Run().complete);
  CHECK(f.Query("SELECT count(*) FROM turns") == 4);
}

TEST_CASE("a fault voids the turn, which is made again after a rest and never scored 0") {
  Fixture f(2);
  std::atomic<int> left{4};
  f.environment.before_evaluate = [&](int) {
    if (left-- > 0) throw Error(ExitCode::kBroken, "evaluator: gone");
  };
  CHECK(f.Run().complete);
  CHECK(f.faults == std::vector<std::string>{"evaluator: gone", "evaluator: gone"});
  CHECK(f.Query("SELECT count(*) FROM turns") == 8);
  CHECK(f.Query("SELECT sum(attempts) FROM work_items") == 2);
  CHECK(f.Query("SELECT sum(faults) FROM work_items") == 0);
}

TEST_CASE("what cannot work is parked at once, what never works after some trials") {
  Fixture f(1);
  SECTION("a policy that cannot write the problem") {
    testing::ScriptedPolicy unable({});
    unable.why_not = "no such family";
    f.answers = &unable;
    CHECK(f.Run().complete);
    CHECK(f.faults == std::vector<std::string>{"parked: level1/19: no such family"});
  }
  SECTION("an API that is dead") {
    testing::ScriptedPolicy dead({});
    f.answers = &dead;
    f.options.most_faults = 3;
    CHECK(f.Run().complete);
    CHECK(f.faults.size() == 3);
    CHECK(f.faults.back() == "parked: scripted: no more answers");
  }
  CHECK(f.Counts().parked == 1);
  CHECK(WorkQueue(f.store).Parked(f.options.collection)[0].error.size() > 5);
}

TEST_CASE("where nothing works the rollout ends with the reason, and nothing is lost") {
  Fixture f(30);
  f.environment.before_evaluate = [&](int) { throw Error(ExitCode::kBroken, "evaluator: gone", "doctor"); };
  try {
    f.Run();
    FAIL("nothing worked");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("errors without a turn between them; the latest: evaluator: gone") !=
          std::string::npos);
    CHECK(error.code() == ExitCode::kBroken);
  }
  CHECK((f.Counts().waiting == 30 && f.Counts().leased == 0));
}

TEST_CASE("a budget drains") {
  Fixture f(8);
  f.options.parallel = 1;
  const auto slow = [&](int) { std::this_thread::sleep_for(std::chrono::milliseconds(60)); };
  f.environment.before_evaluate = slow;
  SECTION("tokens, over interruptions") {
    f.options.budget.tokens = 330;  // a turn takes 110
    CHECK(f.Run().out_of == "330 tokens");
    const int64_t turns = f.Query("SELECT count(*) FROM turns");
    CHECK((turns >= 3 && turns <= 6));
    CHECK(f.Run().out_of == "330 tokens");
    CHECK(f.Query("SELECT count(*) FROM turns") <= turns + 2);
  }
  SECTION("hours, of this process") {
    f.options.budget.hours = 0.3 / 3600;
    CHECK(f.Run().out_of == "0.3 seconds");
  }
  CHECK(f.Counts().leased == 0);
}

TEST_CASE("budgets in all units") {
  CollectionUsage usage;
  usage.prompt_tokens = 2'000'000;
  usage.completion_tokens = 1'000'000;
  usage.device_s = 50;
  Budget budget;
  CHECK(Exceeded(budget, usage, 1e9).empty());
  budget.dollars_per_million_prompt = 2;
  budget.dollars_per_million_completion = 10;
  CHECK(DollarsFor(budget, usage) == Approx(14));
  budget.dollars = 14.5;
  CHECK(Exceeded(budget, usage, 0).empty());
  budget.dollars = 14;
  CHECK(Exceeded(budget, usage, 0) == "14 dollars");
  budget.dollars.reset();
  budget.device_s = 50;
  CHECK(Exceeded(budget, usage, 0) == "50 seconds of the device");
  budget.device_s.reset();
  budget.tokens = 3'000'000;
  CHECK(Exceeded(budget, usage, 0) == "3000000 tokens");
  budget.tokens.reset();
  budget.hours = 2;
  CHECK(Exceeded(budget, usage, 7199).empty());
  CHECK(Exceeded(budget, usage, 7200) == "2 hours");
}

TEST_CASE("an episode broken off while its winner was confirmed ends as if it had not been") {
  Fixture f(1);
  f.options.parallel = 1;
  Fixture undisturbed(1);
  undisturbed.options.parallel = 1;
  undisturbed.Run();
  // The first confirmation is stored, then the process is told to stop.
  f.environment.before_evaluate = [&](int) {
    if (f.environment.calls.back().find("(confirm)") == std::string::npos) return;
    f.stop = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  };
  f.Run();
  CHECK(f.ended == 0);
  f.stop = false;
  f.environment.before_evaluate = nullptr;
  f.Run();
  CHECK(f.ended == 1);
  for (const char* sql :
       {"SELECT count(*) FROM evaluations WHERE purpose = 'confirm'", "SELECT count(*) FROM evaluations",
        "SELECT best_turn FROM episodes", "SELECT CAST(best_speedup * 1000 AS INTEGER) FROM episodes"}) {
    CHECK(f.Query(sql) == undisturbed.Query(sql));
  }
}

TEST_CASE("confirmations that were stored before a kill are not made again") {
  Fixture f(1);
  f.options.parallel = 1;
  f.Run();
  const int64_t confirmations = f.Query("SELECT count(*) FROM evaluations WHERE purpose = 'confirm'");
  REQUIRE(confirmations >= 1);
  // As it lies after a kill between the last confirmation and the episode's end.
  Database database(f.folder.path() / "kevin.db", Database::Access::kReadWrite, 1000);
  database.Execute(
      "UPDATE episodes SET state = 'running', best_turn = NULL, best_speedup = NULL;"
      "UPDATE work_items SET state = 'waiting'; UPDATE collections SET finished_at = NULL");
  f.environment.calls.clear();
  CHECK(f.Run().complete);
  CHECK(f.environment.calls.empty());
  CHECK(f.Query("SELECT count(*) FROM evaluations WHERE purpose = 'confirm'") == confirmations);
  CHECK(f.Query("SELECT count(*) FROM episodes WHERE state = 'done' AND best_speedup IS NOT NULL") == 1);
}

TEST_CASE("a rollout ends where only items of another model of device are left, and names it") {
  Fixture f(3);
  f.options.parallel = 1;
  f.environment.facts.device = "cpu: Fake, 2 threads";
  f.hooks.on_turn = [&](const TurnRecord&, const EpisodeRecord&) { f.drain = true; };
  CHECK_FALSE(f.Run().complete);
  f.drain = false;
  f.hooks.on_turn = nullptr;
  f.environment.facts.device = "cpu: Fake, 4 threads";
  Database database(f.folder.path() / "kevin.db", Database::Access::kReadWrite, 1000);
  SECTION("it waits") {}
  SECTION("its worker has ended, here or elsewhere") {
    database.Execute(
        "UPDATE work_items SET state = 'leased', lease_owner = 'x', lease_until = '2000-01-01T00:00:00.000Z' "
        "WHERE episode IS NOT NULL");
  }
  const RolloutEnd end = f.Run();
  CHECK_FALSE(end.complete);
  CHECK(end.left_to == std::vector<std::string>{"Fake, 2 threads"});
  CHECK((f.Counts().waiting + f.Counts().leased == 1 && f.Counts().done == 2));
  f.environment.facts.device = "cpu: Fake, 2 threads";
  const RolloutEnd last = f.Run();
  CHECK((last.complete && last.left_to.empty()));
}

TEST_CASE("items of another model of device are waited for while somebody works") {
  Fixture f(3);
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
  Fixture f(1);
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
