// Answers that are computed on a device wait while a pair is timed on it, on whichever device that is. The device
// is a stand-in: an environment that takes its lock, as a judge does. Answers that are computed together do not wait for
// single verdicts.

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "agent/episode.h"
#include "agent/machine.h"
#include "env/process/machine.h"
#include "tests/catch.h"
#include "tests/support/fakes.h"

namespace kevin {
namespace {

// Computes its answers on `device`, for some milliseconds.
class ComputingPolicy : public Policy {
 public:
  ComputingPolicy(std::string device, const std::atomic<bool>& timed, std::vector<std::string> further = {})
      : device_(std::move(device)), further_(std::move(further)), timed_(timed) {}

  Completion Complete(const Request& request, const CancelToken*, const OnText&) override {
    for (int i = 0; i < 20; ++i) {
      disturbed += timed_;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    Completion completion;
    completion.text = testing::FakeReply(fmt::format("measured {}.{}", 1 + request.task.turn, answers++));
    completion.stop_reason = "stop";
    return completion;
  }
  std::string Name() const override { return "computing"; }
  std::string ComputesOn() const override { return device_; }
  std::vector<std::string> FurtherLocks() const override { return further_; }

  std::atomic<int> disturbed{0}, answers{0};

 private:
  const std::string device_;
  const std::vector<std::string> further_;
  const std::atomic<bool>& timed_;
};

// Episodes side by side; a judge takes the lock of `judge_on` and calls `judged` for each verdict.
void RunSideBySide(Policy& policy, const std::string& judge_on, int count, int turns,
                   const std::function<void()>& judged) {
  const testing::TempFolder folder;
  const Problem problem = testing::ReluProblem();
  testing::FakeEnvironment environment;
  environment.facts.device = judge_on + ": Fake";
  environment.before_evaluate = [&](int) {
    const DeviceLock lock(LockNameOf(judge_on), LockMode::kExclusive, nullptr);
    judged();
  };
  Store store = Store::Open(folder.path() / "kevin.db", OpenMode::kCreate);
  EpisodeOptions options;
  options.run = store.BeginRun({});
  options.output = folder.path() / "out", options.machine = "Fake", options.threads = 2;
  options.audit_rates = {0, 0}, options.turns = turns;
  std::vector<std::jthread> episodes;
  for (int i = 0; i < count; ++i) {
    episodes.emplace_back([&] {
      const CancelToken cancel{false};
      RunEpisode(problem, policy, environment, store, options, {}, &cancel);
    });
  }
}

int Disturbed(const std::string& policy_on, const std::string& judge_on,
              const std::vector<std::string>& further = {}) {
  std::atomic<bool> timed{false};
  ComputingPolicy policy(policy_on, timed, further);
  RunSideBySide(policy, judge_on, 3, 4, [&] {
    timed = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    timed = false;
  });
  CHECK(policy.answers == 12);
  return policy.disturbed;
}

constexpr int kTogether = 4, kTurnsTogether = 3;

// Each answer waits for those of all other episodes.
class MeetingPolicy : public Policy {
 public:
  MeetingPolicy(std::string device, bool together) : device_(std::move(device)), together_(together) {}

  Completion Complete(const Request& request, const CancelToken*, const OnText&) override {
    Completion completion;
    {
      std::unique_lock lock(mutex_);
      const int turn = request.task.turn;
      if (++came_[turn] == kTogether) changed_.notify_all();
      const bool met = changed_.wait_for(lock, std::chrono::milliseconds(together_ ? 10000 : 300),
                                         [&] { return came_[turn] == kTogether; });
      alone += !met;
      completion.text = testing::FakeReply(fmt::format("measured {}.{}", 1 + turn, answers_++));
    }
    completion.stop_reason = "stop";
    return completion;
  }
  std::string Name() const override { return "meeting"; }
  std::string ComputesOn() const override { return device_; }
  bool AnswersTogether() const override { return together_; }

  std::atomic<int> alone{0};

 private:
  const std::string device_;
  const bool together_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, int> came_;
  int answers_ = 0;
};

int Alone(bool together) {
  const std::string device = "cuda:5";  // no other test has its lock
  MeetingPolicy policy(device, together);
  RunSideBySide(policy, device, kTogether, kTurnsTogether,
                [] { std::this_thread::sleep_for(std::chrono::milliseconds(10)); });
  return policy.alone;
}

}  // namespace

TEST_CASE("answers that are computed together are not held up by single verdicts") {
  CHECK(Alone(true) == 0);
  // The check can fail: a verdict waits for the answers in progress, and later answers wait behind it.
  CHECK(Alone(false) > 0);
}

TEST_CASE("no answer is computed on a device while a pair is timed there") {
  CHECK(Disturbed("cpu", "cpu") == 0);
  CHECK(Disturbed("cuda:6", "cuda:6") == 0);
  CHECK(Disturbed("cuda:7", "cuda:7") == 0);
  // Nor on a further device that computes the same answers.
  CHECK(Disturbed("cuda:6", "cuda:7", {LockNameOf("cuda:7")}) == 0);
  // The check can fail: elsewhere nothing waits.
  CHECK(Disturbed("cuda:6", "cuda:7") > 0);
  CHECK(Disturbed("", "cuda:8") > 0);
}

TEST_CASE("work on two devices waits while a pair is timed on one of them") {
  std::atomic<bool> is_working{false};
  std::thread working;
  for (const char* timed : {"cuda:6", "cuda:7"}) {
    is_working = false;
    {
      const DeviceLock timing(LockNameOf(timed), LockMode::kExclusive, nullptr);
      working = std::thread([&] {
        const SharedDevices both({"cuda:7", "cuda:6", "cuda:7"});
        is_working = true;
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      CHECK_FALSE(is_working);
    }
    working.join();
    CHECK(is_working);
  }
}

TEST_CASE("work on crossed devices, with measurements that wait for each of them, comes to an end") {
  std::atomic<int> ended{0};
  std::vector<std::thread> threads;
  const auto repeat = [&](const std::function<void()>& work) {
    threads.emplace_back([&ended, work] {
      for (int i = 0; i < 30; ++i) work();
      ++ended;
    });
  };
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(3)); };
  for (const auto& [from, to] : {std::pair{"cuda:6", "cuda:7"}, {"cuda:7", "cuda:6"}}) {
    repeat([=] {
      const SharedDevices both({from, to});
      pause();
    });
    repeat([=] {
      const DeviceLock timing(LockNameOf(from), LockMode::kExclusive, nullptr);
      pause();
    });
  }
  for (int i = 0; i < 3000 && ended < 4; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  if (ended < 4) FAIL("they wait for each other");
  for (std::thread& thread : threads) thread.join();
}

}  // namespace kevin
