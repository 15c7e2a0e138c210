// Sessions that an evaluator keeps, and the order in which waiting requests are served.

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "env/error.h"
#include "env/process/evaluator_client.h"
#include "env/process/resident_sessions.h"
#include "tests/catch.h"

namespace kevin {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Strings = std::vector<std::string>;

struct Counted {
  explicit Counted(int* count) : live(count) { ++*live; }
  ~Counted() { --*live; }
  int* live;
};

}  // namespace

TEST_CASE("the least recently used session is dropped, and before the new one is made") {
  int live = 0;
  ResidentSessions<Counted> sessions(2);
  const auto add = [&](const std::string& key) {
    sessions.MakeRoomForOne();
    CHECK(live < 2);
    sessions.Add(key, std::make_unique<Counted>(&live));
  };
  add("a");
  add("b");
  CHECK(sessions.Find("a") != nullptr);
  CHECK(sessions.Find("c") == nullptr);
  CHECK(sessions.Keys() == Strings{"a", "b"});
  add("c");
  CHECK(sessions.Keys() == Strings{"c", "a"});
  CHECK(sessions.DropOldestOther());
  CHECK_FALSE(sessions.DropOldestOther());
  CHECK(sessions.Keys() == Strings{"c"});
  CHECK(live == 1);
  CHECK(sessions.DropOldest());
  CHECK_FALSE(sessions.DropOldest());
  CHECK(live == 0);
}

namespace {

// Memory of a device: what sessions hold, and what an allocator keeps of sessions that are gone.
struct FakeMemory {
  int free = 10, cached = 0;
  void Take(int amount) {
    if (amount > free) throw std::runtime_error("CUDA out of memory. Tried to allocate 5.00 GiB");
    free -= amount;
  }
};
struct Holding {
  Holding(FakeMemory* of, int held) : memory(of), amount(held) { memory->Take(amount); }
  ~Holding() { memory->cached += amount; }
  FakeMemory* memory;
  int amount;
};

// One evaluation of problem `key`: its session holds `amount`, its reference takes `more` for a while.
struct FakeEvaluation {
  FakeMemory memory;
  ResidentSessions<Holding> sessions{4};
  int attempts = 0;

  int Judge(const std::string& key, int amount, int more) {
    return AttemptWithRoom(
        sessions,
        [&] {
          ++attempts;
          if (!sessions.Find(key)) sessions.Add(key, std::make_unique<Holding>(&memory, amount));
          memory.Take(more);
          memory.free += more;
          return attempts;
        },
        [&] { memory.free += memory.cached, memory.cached = 0; });
  }
};

}  // namespace

TEST_CASE("where memory runs out, an evaluation has it alone at the second attempt") {
  FakeEvaluation evaluation;
  CHECK(evaluation.Judge("a", 4, 4) == 1);
  CHECK(evaluation.Judge("b", 2, 4) == 2);
  CHECK(evaluation.Judge("c", 2, 4) == 4);  // 2 are free, then 8
  CHECK(evaluation.sessions.Keys() == Strings{"c"});
  // Its own session was resident and needs to be made again.
  CHECK(evaluation.Judge("a", 4, 1) == 5);
  CHECK(evaluation.Judge("c", 2, 5) == 7);
  CHECK(evaluation.sessions.Keys() == Strings{"c"});
}

TEST_CASE("what does not fit even alone is an Error, and other failures are not repeated") {
  FakeEvaluation evaluation;
  try {
    evaluation.Judge("a", 6, 5);
    FAIL("it fits");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBroken);
    CHECK(std::string(error.what()).find("CUDA out of memory") != std::string::npos);
  }
  CHECK(evaluation.attempts == 2);
  ResidentSessions<Counted> sessions(2);
  int attempts = 0;
  const auto fail = [&]() -> int {
    ++attempts;
    throw std::logic_error("a mistake");
  };
  CHECK_THROWS_AS(AttemptWithRoom(sessions, fail, [] {}), std::logic_error);
  CHECK(attempts == 1);
  // Nor with other sessions resident, where an Error may come from a lack of room.
  FakeEvaluation crowded;
  crowded.Judge("a", 1, 1);
  crowded.Judge("b", 1, 1);
  const auto throwing = [&](auto error) {
    attempts = 0;
    const auto attempt = [&]() -> int {
      ++attempts;
      throw error;
    };
    try {
      AttemptWithRoom(crowded.sessions, attempt, [] {});
      FAIL("it is thrown");
    } catch (const Error& thrown) {
      CHECK(std::string(thrown.what()) == "a reason");
    }
    return attempts;
  };
  CHECK(throwing(DeviceFailed(ExitCode::kBadRequest, "a reason")) == 1);
  CHECK(crowded.sessions.size() == 2);
  CHECK(throwing(Error(ExitCode::kBroken, "a reason")) == 2);
  CHECK(crowded.sessions.size() == 0);
}

TEST_CASE("requests with a resident session come first, the oldest of them first") {
  RequestOrder order(seconds(3));
  const auto start = RequestOrder::Clock::now();
  CHECK(order.Next({}, start) == 0);
  const auto x = order.Enter("x", start), a1 = order.Enter("a", start), a2 = order.Enter("a", start);
  CHECK(order.Next({"a"}, start) == a1);
  order.Leave(a1);
  CHECK(order.Next({"a"}, start) == a2);
  CHECK(order.Next({"b"}, start) == x);
  CHECK(order.Next({}, start) == x);
  const auto none = order.Enter("", start);
  order.Leave(a2);
  CHECK(order.Next({"a"}, start) == none);
}

TEST_CASE("no request starves: after its patience it comes before the resident ones") {
  RequestOrder order(seconds(3));
  auto now = RequestOrder::Clock::now();
  const auto x = order.Enter("x", now);
  int before = 0;
  for (auto a = order.Enter("a", now); order.Next({"a"}, now) != x; a = order.Enter("a", now)) {
    REQUIRE(order.Next({"a"}, now) == a);
    order.Leave(a);
    now += milliseconds(250);
    ++before;
  }
  CHECK(before == 13);
}

TEST_CASE("an interrupt ends the wait for the evaluator, and the next request is not lost") {
  std::atomic<bool> stop{false};
  SharedEvaluator evaluator([] {
    return std::make_unique<EvaluatorClient>(
        std::vector<std::string>{
            "/bin/sh", "-c",
            "read line <&3; sleep 1; echo '{\"result\":1}' >&3; read line <&3; echo '{\"result\":2}' >&3"},
        std::vector<std::string>{});
  });
  double wait_s = 0, waited_s = 0, later_s = 0;
  // The evaluator ends with the thread that started it: this one.
  std::thread interrupted([&] {
    std::this_thread::sleep_for(milliseconds(200));
    CHECK_THROWS_AS(evaluator.Ask({{"session", "b"}}, {}, &stop, &waited_s), Error);
  });
  std::thread last([&] {
    std::this_thread::sleep_for(milliseconds(300));
    stop = true;
    CHECK(evaluator.Ask({{"session", "c"}}, {}, nullptr, &later_s) == 2);
  });
  CHECK(evaluator.Ask({{"session", "a"}}, {}, nullptr, &wait_s) == 1);
  interrupted.join();
  last.join();
  CHECK(later_s > 0.3);
}

TEST_CASE("an evaluator that asks for it is started again, and the request is sent to the new one") {
  int started = 0;
  SharedEvaluator evaluator([&] {
    const std::string answer =
        ++started == 1 ? StartAgainAnswer().dump() : "\"" + std::to_string(started) + "\"";
    return std::make_unique<EvaluatorClient>(
        std::vector<std::string>{"/bin/sh", "-c",
                                 "while read line <&3; do echo '{\"result\":" + answer + "}' >&3; done"},
        std::vector<std::string>{});
  });
  double wait_s = 0;
  CHECK(evaluator.Ask({{"session", "a"}}, {}, nullptr, &wait_s) == "2");
  CHECK(evaluator.Ask({{"session", "a"}}, {}, nullptr, &wait_s) == "2");
  CHECK(started == 2);
}

// Each evaluator that it starts answers with these lines, one after another.
SharedEvaluator Answering(int* started, std::vector<std::string> answers) {
  return SharedEvaluator([started, answers = std::move(answers)] {
    ++*started;
    std::vector<std::string> argv = {
        "/bin/sh", "-c", "for answer; do read line <&3; echo \"$answer\" >&3; done; read line <&3", "sh"};
    argv.insert(argv.end(), answers.begin(), answers.end());
    return std::make_unique<EvaluatorClient>(argv, std::vector<std::string>{});
  });
}

std::string AnswerOf(int result) { return fmt::format(R"({{"resident":["a"],"result":{}}})", result); }

TEST_CASE("a session is made ready once, and only by an evaluator that runs") {
  int started = 0;
  SharedEvaluator evaluator = Answering(&started, {AnswerOf(1), AnswerOf(2), AnswerOf(3), AnswerOf(4)});
  double wait_s = 0;
  evaluator.GetReady({{"session", "b"}}, nullptr);
  CHECK(started == 0);
  CHECK(evaluator.Ask({{"session", "a"}}, {}, nullptr, &wait_s) == 1);
  evaluator.GetReady({{"session", "a"}}, nullptr);
  CHECK(evaluator.Ask({{"session", "a"}}, {}, nullptr, &wait_s) == 2);
  evaluator.GetReady({{"session", "b"}}, nullptr);
  CHECK(evaluator.Ask({{"session", "b"}}, {}, nullptr, &wait_s) == 4);
  CHECK(started == 1);
}

TEST_CASE("what fails while a session is made ready is left to its evaluation, by a new evaluator") {
  const std::string answer =
      GENERATE(as<std::string>(), R"({"error":{"code":3,"what":"no memory","next":""}})",
               json{{"result", StartAgainAnswer()}}.dump());
  int started = 0;
  SharedEvaluator evaluator = Answering(&started, {AnswerOf(1), answer});
  double wait_s = 0;
  CHECK(evaluator.Ask({{"session", "a"}}, {}, nullptr, &wait_s) == 1);
  evaluator.GetReady({{"session", "b"}}, nullptr);
  CHECK(started == 1);
  CHECK(evaluator.Ask({{"session", "b"}}, {}, nullptr, &wait_s) == 1);
  CHECK(started == 2);
}

}  // namespace kevin
