// Leases: who may work on what, and who may no longer write.

#include "trajectories/work_queue.h"

#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "env/error.h"
#include "tests/catch.h"
#include "tests/trajectories/sample_records.h"
#include "tests/trajectories/test_database.h"

namespace kevin {
namespace {

constexpr double kShort = 0.001;

void WaitPast(double seconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(20 + static_cast<int>(seconds * 1000)));
}

struct Queue {
  TestDatabase test;
  Store store = test.Open(OpenMode::kCreate);
  WorkQueue queue{store};
  WorkQueue::Opened opened;
  LeaseTerms terms;

  explicit Queue(std::vector<std::string> items)
      : opened(queue.Open("key", R"({"a":1})", items, {SampleProblem()}, SampleRun(), false)) {
    terms.collection = opened.collection;
    terms.device = "test";
  }
  std::string Begin(const Lease& lease) {
    EpisodeRecord episode = SampleEpisode(opened.collection);
    episode.last_run = opened.worker_run;
    episode.lease = lease;
    return store.BeginEpisode(episode, SampleProblem());
  }
  WorkItem TakeFor(double seconds) {
    terms.seconds = seconds;
    const auto item = queue.Take(terms);
    REQUIRE(item);
    return *item;
  }
};

std::string What(const std::function<void()>& act) {
  try {
    act();
  } catch (const LeaseLost& error) {
    return std::string("lease lost: ") + error.what();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST_CASE("a collection without items, as an import brings it, is not continued") {
  Queue q({});
  const WorkQueue::Opened next =
      q.queue.Open("key", R"({"a":1})", {"one"}, {SampleProblem()}, SampleRun(), false);
  CHECK_FALSE(next.resumed);
  q.terms.collection = next.collection;
  CHECK(q.TakeFor(60).spec == "one");
  CHECK(q.queue.Open("key", R"({"a":1})", {"one"}, {SampleProblem()}, SampleRun(), false).resumed);
}

TEST_CASE("items go out in order, each once, and the collection ends with the last") {
  Queue q({"one", "two", "three"});
  CHECK_FALSE(q.opened.resumed);
  std::vector<WorkItem> taken;
  for (int i = 0; i < 3; ++i) taken.push_back(q.TakeFor(60));
  CHECK((taken[0].spec == "one" && taken[1].spec == "two" && taken[2].spec == "three"));
  CHECK((taken[0].lease.fence == 1 && taken[0].attempts == 0 && taken[0].episode.empty()));
  CHECK_FALSE(q.queue.Take(q.terms));
  q.queue.Finish(taken[0].lease);
  q.queue.GiveBack(taken[1].lease);
  q.queue.Park(taken[2].lease, "no such problem");
  const QueueCounts counts = q.queue.Count(q.opened.collection);
  CHECK((counts.done == 1 && counts.waiting == 1 && counts.parked == 1 && counts.leased == 0));
  const auto parked = q.queue.Parked(q.opened.collection);
  REQUIRE(parked.size() == 1);
  CHECK((parked[0].spec == "three" && parked[0].error == "no such problem"));
  CHECK_FALSE(q.queue.FinishIfDone(q.opened.collection));
  const WorkItem again = q.TakeFor(60);
  CHECK((again.spec == "two" && again.lease.fence == 2 && again.attempts == 0));
  q.queue.Finish(again.lease);
  CHECK(q.queue.FinishIfDone(q.opened.collection));
  CHECK(q.queue.Find(q.opened.collection.substr(0, 26)).finished);
}

TEST_CASE("a look at the next item takes nothing") {
  Queue q({"one", "two"});
  q.terms.seconds = 60;
  CHECK(q.queue.Next(q.terms) == "one");
  CHECK(q.queue.Next(q.terms) == "one");
  CHECK(q.queue.Count(q.opened.collection).waiting == 2);
  CHECK(q.TakeFor(60).spec == "one");
  CHECK(q.queue.Next(q.terms) == "two");
  q.TakeFor(60);
  CHECK_FALSE(q.queue.Next(q.terms));
}

TEST_CASE("the same request goes on in its unfinished collection; another, or a finished one, begins anew") {
  Queue q({"one"});
  const auto same = q.queue.Open("key", "{}", {"not used"}, {}, SampleRun(), false);
  CHECK((same.resumed && same.collection == q.opened.collection && same.worker_run != q.opened.worker_run));
  CHECK(q.queue.Find(q.opened.collection).spec == R"({"a":1})");
  CHECK_FALSE(q.queue.Open("other key", "{}", {"x"}, {}, SampleRun(), false).resumed);
  CHECK_FALSE(q.queue.Open("key", "{}", {"x"}, {}, SampleRun(), true).resumed);
  q.queue.Finish(q.TakeFor(60).lease);
  CHECK(q.queue.FinishIfDone(q.opened.collection));
  const auto newest = q.queue.Open("key", "{}", {"x"}, {}, SampleRun(), false);
  CHECK(newest.collection != q.opened.collection);
  CHECK(newest.resumed);  // the one that `always_new` made
  CHECK(What([&] { q.queue.Find("01ZZ"); }).find("no collection '01ZZ'") != std::string::npos);
  CHECK(What([&] { q.queue.Find("01"); }).find("more than one") != std::string::npos);
}

TEST_CASE("who lost a lease can write no more, and its successor goes on in the same episode") {
  Queue q({"one"});
  const WorkItem slow = q.TakeFor(kShort);
  const std::string episode = q.Begin(slow.lease);
  q.store.AppendTurn(episode, SampleTurn(1, 1.5));
  WaitPast(kShort);
  Store other = q.test.Open(OpenMode::kWrite);
  WorkQueue second(other);
  q.terms.seconds = 60;
  const auto item = second.Take(q.terms);
  REQUIRE(item);
  CHECK((item->episode == episode && item->lease.fence > slow.lease.fence && item->attempts == 1));
  CHECK(item->kills == 1);
  other.Hold(episode, item->lease);

  const auto lost = [&](const std::function<void()>& act) { return What(act).starts_with("lease lost"); };
  CHECK(lost([&] { q.store.AppendTurn(episode, SampleTurn(2, 1.5)); }));
  CHECK(lost([&] { q.store.AppendEvaluation(episode, 1, SampleEvaluation("kernel 1", 1.4)); }));
  CHECK(lost([&] { q.store.FinishEpisode(episode, {}); }));
  CHECK(lost([&] { q.queue.Finish(slow.lease); }));
  CHECK(lost([&] { q.queue.Fault(slow.lease, "x", 0); }));
  CHECK(lost([&] { q.Begin(slow.lease); }));
  CHECK(q.queue.Renew({slow.lease, item->lease}, 60) == std::vector<std::string>{slow.lease.item});

  other.ResumeEpisode(episode, second.Join(q.opened.collection, SampleRun()), 7);
  other.AppendTurn(episode, SampleTurn(2, 1.6));
  other.FinishEpisode(episode, {});
  second.Finish(item->lease);
  const EpisodeRecord done = other.FindEpisode(episode);
  CHECK((done.turns == 2 && done.run == q.opened.collection && done.state == EpisodeState::kDone));
  CHECK(q.test.Look().QueryInteger("SELECT count(*) FROM episodes") == 1);
}

TEST_CASE("an item that kills its workers is parked with its reason; a turn between clears it") {
  Queue q({"poison"});
  q.terms.most_kills = 3;
  const WorkItem first = q.TakeFor(kShort);
  const std::string episode = q.Begin(first.lease);
  WaitPast(kShort);
  WorkItem next = q.TakeFor(kShort);
  CHECK(next.kills == 1);
  WaitPast(kShort);
  next = q.TakeFor(kShort);
  CHECK(next.kills == 2);
  q.store.Hold(episode, next.lease);
  q.store.AppendTurn(episode, SampleTurn(1, 1.5));
  for (int kills = 1; kills <= 2; ++kills) {
    WaitPast(kShort);
    CHECK(q.TakeFor(kShort).kills == kills);
  }
  WaitPast(kShort);
  CHECK_FALSE(q.queue.Take(q.terms));
  const auto parked = q.queue.Parked(q.opened.collection);
  REQUIRE(parked.size() == 1);
  CHECK(parked[0].error.find("3 workers died on it") == 0);
  CHECK(q.queue.FinishIfDone(q.opened.collection));
}

TEST_CASE("a fault lets the item rest, and counts") {
  Queue q({"one"});
  q.queue.Fault(q.TakeFor(60).lease, "no network", 0.3);
  CHECK_FALSE(q.queue.Take(q.terms));
  WaitPast(0.3);
  const WorkItem again = q.TakeFor(60);
  CHECK((again.attempts == 1 && again.faults == 1 && again.kills == 0));
}

TEST_CASE("an episode stays with the model of device it was begun on") {
  Queue q({"one"});
  const WorkItem item = q.TakeFor(60);
  q.Begin(item.lease);
  q.queue.GiveBack(item.lease);
  LeaseTerms elsewhere = q.terms;
  elsewhere.device = "another model";
  CHECK_FALSE(q.queue.Take(elsewhere));
  CHECK(q.queue.Take(q.terms));
}

TEST_CASE("what a collection used is summed over its episodes") {
  Queue q({"one", "two"});
  for (int i = 0; i < 2; ++i) {
    const std::string episode = q.Begin(q.TakeFor(60).lease);
    q.store.AppendTurn(episode, SampleTurn(1, 1.5));
    q.store.AppendTurn(episode, SampleTurn(2, 1.5));
  }
  BeginSample(q.store);  // no part of it
  const CollectionUsage usage = q.queue.Usage(q.opened.collection);
  CHECK((usage.turns == 4 && usage.prompt_tokens == 400 && usage.completion_tokens == 800));
  CHECK(usage.device_s == Approx(1.0));
}

TEST_CASE("many workers, each with a connection of its own, never hold one item at once") {
  std::vector<std::string> items;
  for (int i = 0; i < 300; ++i) items.push_back(std::to_string(i));
  Queue q(items);
  std::set<std::string> seen;
  std::mutex mutex;
  std::atomic<int> doubles{0}, broken{0};
  std::vector<std::thread> workers;
  for (int w = 0; w < 6; ++w) {
    workers.emplace_back([&] {
      try {
        Store store = q.test.Open(OpenMode::kWrite);
        WorkQueue queue(store);
        while (const auto item = queue.Take(q.terms)) {
          {
            const std::lock_guard lock(mutex);
            if (!seen.insert(item->spec).second) ++doubles;
          }
          queue.Finish(item->lease);
        }
      } catch (const std::exception&) {
        ++broken;
      }
    });
  }
  for (auto& worker : workers) worker.join();
  CHECK(broken == 0);
  CHECK(doubles == 0);
  CHECK(seen.size() == 300);
  CHECK(q.queue.Count(q.opened.collection).done == 300);
}

}  // namespace
}  // namespace kevin
