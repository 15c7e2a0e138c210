#include "agent/rollout/rollout.h"

#include <atomic>
#include <set>

#include "env/error.h"
#include "tests/agent/rollout/rollout_fixture.h"
#include "tests/catch.h"
#include "tests/trajectories/sample_records.h"

namespace kevin {

TEST_CASE("a collection runs all its episodes, each with a seed of its own, and is finished") {
  RolloutFixture f;
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
  RolloutFixture f;
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
  RolloutFixture f(2);
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
  RolloutFixture f(3);
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
    RolloutFixture many(3);
    many.options.parallel = 2;
    CHECK(many.Run().complete);
    CHECK(many.environment.expected.empty());
  }
}

TEST_CASE("stopped, the turn in hand is thrown away and the item goes back") {
  RolloutFixture f(1);
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
  RolloutFixture f(2);
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
  RolloutFixture f(1);
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
  RolloutFixture f(30);
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
  RolloutFixture f(8);
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
  RolloutFixture f(1);
  f.options.parallel = 1;
  RolloutFixture undisturbed(1);
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
  RolloutFixture f(1);
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

}  // namespace kevin
