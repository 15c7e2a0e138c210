#include "env/process/wire.h"

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "env/error.h"
#include "env/process/evaluator_client.h"
#include "env/process/machine.h"
#include "env/process/spawn.h"
#include "tests/catch.h"

namespace kevin {

TEST_CASE("every outcome survives the wire") {
  Measured measured;
  measured.speedup = {1.5, 1.4, 1.6, 0.01, 24, 3};
  measured.against_start = Ratio{1.1, 1.0, 1.2, 0.02, 24, 3};
  measured.verdict = Verdict::kFast;
  measured.verdict_against_start = Verdict::kSame;
  measured.candidate_us = 12;
  measured.floor_us = 3;
  for (const Outcome& outcome : {Outcome(ParseFailed{"p"}), Outcome(CompileFailed{"l"}),
                                 Outcome(CompileFailed{"", "at mine/2 (N = 1001)"}),
                                 Outcome(CompileFailed{"a.cpp:2:3: error: x\nmore", "at mine/2 (N = 1001)"}),
                                 Outcome(Refused{"r"}), Outcome(Crashed{"c"}), Outcome(TimedOut{"verify", 2}),
                                 Outcome(Wrong{"w", 1, 2}), Outcome(measured)}) {
    const Outcome back = OutcomeFromJson(nlohmann::ordered_json::parse(OutcomeToJson(outcome).dump()));
    CHECK(back.index() == outcome.index());
    CHECK(OutcomeReason(back) == OutcomeReason(outcome));
    CHECK(OutcomeToJson(back) == OutcomeToJson(outcome));
    CHECK(OutcomeToJson(OutcomeOf(FieldsOf(outcome), "")).at("reason") ==
          OutcomeToJson(outcome).at("reason"));
    const std::vector<ShapeResult> shapes = {{"mine/1", {{"N", 7}}, 2.5, outcome, 3, 4000, 0}};
    CHECK(ShapesToText(ShapesFromText(ShapesToText(shapes))) == ShapesToText(shapes));
  }
  const Outcome endless = Wrong{"inf", std::numeric_limits<double>::infinity(), 1};
  CHECK(std::get<Wrong>(OutcomeFromJson(nlohmann::ordered_json::parse(OutcomeToJson(endless).dump())))
            .max_error == std::numeric_limits<double>::infinity());
}

TEST_CASE("samples survive the wire") {
  const Sample sample{2, 3, "fixed", "candidate", 7, 1234.5};
  const Sample back = SampleFromJson(SampleToJson(sample));
  CHECK(back.process == 2);
  CHECK(back.pair == 3);
  CHECK(back.phase == "fixed");
  CHECK(back.side == "candidate");
  CHECK(back.calls == 7);
  CHECK(back.total_us == 1234.5);
}

TEST_CASE("lines arrive whole, however they are cut") {
  int pair[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  LineSocket writer(pair[0]), reader(pair[1]);
  const std::string large(200'000, 'x');
  std::thread sender([&] {
    CHECK(writer.Write("one"));
    CHECK(writer.Write(large));
    close(pair[0]);
  });
  std::string line;
  CHECK(reader.Read(&line));
  CHECK(line == "one");
  CHECK(reader.Read(&line));
  CHECK(line == large);
  CHECK_FALSE(reader.Read(&line));
  sender.join();
  CHECK_FALSE(reader.Write("nobody is there"));
  close(pair[1]);
}

TEST_CASE("exclusive execution waits for shared execution and vice versa") {
  double wait_s = 0;
  auto shared = std::make_unique<DeviceLock>("test", LockMode::kShared, &wait_s);
  const DeviceLock also_shared("test", LockMode::kShared, &wait_s);  // does not block
  std::atomic<bool> exclusive{false};
  auto second = std::make_unique<DeviceLock>("test2", LockMode::kExclusive, nullptr);  // another device
  std::thread measurement([&] {
    const DeviceLock lock("test3", LockMode::kExclusive, nullptr);
    const DeviceLock waits("test2", LockMode::kExclusive, nullptr);
    exclusive = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  CHECK_FALSE(exclusive);
  second.reset();
  measurement.join();
  CHECK(exclusive);
  for (const char* name : {"test", "test2", "test3"}) unlink(DeviceLock::PathFor(name).c_str());
}

// How long `work` takes until the token, set after 0.1 s, ends it with an Error.
double SecondsToStop(const std::function<void(const std::atomic<bool>*)>& work) {
  std::atomic<bool> stop{false};
  std::thread setter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    stop = true;
  });
  const auto start = std::chrono::steady_clock::now();
  try {
    work(&stop);
    FAIL_CHECK("it was not interrupted");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kInterrupted);
  }
  setter.join();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST_CASE("an interrupt ends the wait for the device's lock, for the evaluator and for a program") {
  auto held = std::make_unique<DeviceLock>("test4", LockMode::kExclusive, nullptr);
  CHECK(SecondsToStop([](const std::atomic<bool>* stop) {
          const DeviceLock waits("test4", LockMode::kShared, nullptr, stop);
        }) < 1);
  held.reset();
  const std::atomic<bool> never{false};
  {
    const DeviceLock free_again("test4", LockMode::kExclusive, nullptr, &never);
  }  // the abandoned wait keeps nothing
  unlink(DeviceLock::PathFor("test4").c_str());

  EvaluatorClient evaluator({"/bin/sleep", "60"}, {});  // never answers, as one that awaits the lock
  CHECK(SecondsToStop([&](const std::atomic<bool>* stop) { evaluator.Ask({}, {}, stop); }) < 1);

  SpawnOptions spawn;
  spawn.argv = {"/bin/sleep", "60"};
  CHECK(SecondsToStop([&](const std::atomic<bool>* stop) { RunToEnd(spawn, 60, 100, stop); }) < 1);
}

TEST_CASE("a waiting thread gets the lock when it is free") {
  const std::atomic<bool> never{false};
  auto held = std::make_unique<DeviceLock>("test5", LockMode::kExclusive, nullptr);
  double wait_s = 0;
  std::thread waiting([&] { const DeviceLock lock("test5", LockMode::kExclusive, &wait_s, &never); });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  held.reset();
  waiting.join();
  CHECK(wait_s > 0.01);
  unlink(DeviceLock::PathFor("test5").c_str());
}

}  // namespace kevin
