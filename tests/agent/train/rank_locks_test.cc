// Ranks that learn together beside answers and measurements, with locks of devices that are not there.

#include "agent/train/rank_locks.h"

#include <stdlib.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <future>

#include "agent/train/rank_meeting.h"
#include "tests/catch.h"
#include "tests/trajectories/sample_records.h"

namespace kevin {
namespace {

using namespace std::chrono_literals;

constexpr const char *kFirst = "gpu-stand-in-0", *kSecond = "gpu-stand-in-1";

// Rank 1 is ready to learn. On its device a measurement waits, an answer of both ranks then has the lock of rank 0's device
// and wants that of rank 1's, a measurement wants rank 0's device, and last comes rank 0. Whether both ranks learn within
// `patience`; the answer is then given up.
bool BothLearn(bool is_shared, std::chrono::milliseconds patience) {
  std::barrier<> ranks(2);
  std::atomic<bool> stop{false}, timed{false}, learnt_beside_timing{false};
  const auto learn = [&](int rank) {
    RankLocks locks({rank == 0, is_shared, rank == 0 ? kFirst : kSecond, {kFirst, kSecond}},
                    [&] { ranks.arrive_and_wait(); });
    locks.Hold();
    if (timed) learnt_beside_timing = true;
    std::this_thread::sleep_for(50ms);
    if (timed) learnt_beside_timing = true;
    ranks.arrive_and_wait();  // a step ends on all ranks
    locks.Release();
  };
  const auto time = [&](const char* device) {
    const DeviceLock lock(device, LockMode::kExclusive, nullptr);
    timed = true;
    std::this_thread::sleep_for(20ms);
    timed = false;
  };
  const auto answer = [&] {
    try {
      const SharedDevices all(std::set<std::string>{kFirst, kSecond}, &stop);
    } catch (const Error&) {  // given up
    }
  };
  const auto start = [](auto work) {
    auto running = std::async(std::launch::async, work);
    std::this_thread::sleep_for(100ms);
    return running;
  };
  const auto second = start([&] { learn(1); }), timing_second = start([&] { time(kSecond); }),
             answering = start(answer), timing_first = start([&] { time(kFirst); }),
             first = start([&] { learn(0); });
  const auto end = std::chrono::steady_clock::now() + patience;
  const bool both = first.wait_until(end) == std::future_status::ready &&
                    second.wait_until(end) == std::future_status::ready;
  stop = true;
  for (const auto* each : {&second, &timing_second, &answering, &timing_first, &first}) each->wait();
  CHECK_FALSE(learnt_beside_timing);
  return both;
}

}  // namespace

TEST_CASE("each GPU's lock is held by one rank, also where each rank calls its GPU the same") {
  const RankMeeting::Terms terms{0, 4, "cuda:0", "trains on cuda:0"};
  const auto line = [&](const char* host, const char* lock) {
    return RankMeeting::LineOf(terms, host, lock);
  };
  const std::vector<std::string> all = {line("a", kFirst), line("a", kSecond), line("a", kFirst),
                                        line("b", kFirst)};
  std::vector<bool> holds;
  for (int rank = 0; rank < 4; ++rank) holds.push_back(RankMeeting::Compare(all, rank).holds_lock);
  CHECK(holds == std::vector<bool>{true, true, false, true});
  CHECK(RankMeeting::Compare(all, 1).locks == std::vector<std::string>{kFirst, kSecond, kFirst, kFirst});
  RankMeeting::Terms later = terms;
  later.done = 2;
  CHECK_THROWS_AS(RankMeeting::Compare({all[0], RankMeeting::LineOf(later, "a", kSecond)}, 1), Error);
}

TEST_CASE("ranks that sample together learn beside answers and measurements without waiting in a circle") {
  const TemporaryFolder folder;
  setenv("KEVIN_LOCK_DIRECTORY", folder.path().c_str(), 1);
  CHECK(BothLearn(true, 20s));
  // With a lock of its own for each rank they would wait for each other, until the answer ends.
  CHECK_FALSE(BothLearn(false, 1s));
  unsetenv("KEVIN_LOCK_DIRECTORY");
}

TEST_CASE("a rank holds the lock of its own device, or none where another one holds it") {
  const TemporaryFolder folder;
  setenv("KEVIN_LOCK_DIRECTORY", folder.path().c_str(), 1);
  int met = 0;
  for (const std::string& own : {std::string(kFirst), std::string()}) {
    RankLocks locks({false, false, own, {kFirst, kSecond}}, [&] { ++met; });
    locks.Hold();
    const auto timing =
        std::async(std::launch::async, [] { const DeviceLock lock(kFirst, LockMode::kExclusive, nullptr); });
    CHECK((timing.wait_for(300ms) == std::future_status::ready) == own.empty());
    locks.Release();
    CHECK(timing.wait_for(10s) == std::future_status::ready);
  }
  CHECK(met == 2);
  unsetenv("KEVIN_LOCK_DIRECTORY");
}

}  // namespace kevin
