// `--compat kernelbench`: KernelBench's verdict beside Kevin's, kept for the next call, and why they disagree.

#include "tools/kernelbench_compat.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "env/error.h"
#include "env/python/kernelbench_judge.h"
#include "env/python/python_process.h"
#include "tests/catch.h"
#include "tests/tools/kernelbench_fixture.h"

namespace kevin {

TEST_CASE(
    "KernelBench's verdict beside Kevin's: a row with a reason for each disagreement, kept for the next call") {
  Fixture f;
  int asked = 0;
  f.options.judge_as_kernelbench = [&](const PublishedCandidate& one, const Problem&, const Workload&,
                                       const std::string&) {
    ++asked;
    KernelBenchVerdict verdict;
    verdict.compiled = one.number == 19;
    verdict.correct = one.number == 19;
    verdict.trials = verdict.trials_passed = 5;
    verdict.tolerance = 1e-4;
    verdict.max_difference = 9e-5;
    verdict.speedup = 2;
    verdict.differs = {"no cache is flushed"};
    return verdict;
  };
  std::vector<Json> events;
  const KernelBenchTally tally = f.Judge(&events);
  REQUIRE(tally.compared.size() == 3);
  CHECK(tally.compared[0].reason.empty());  // measured 2x, and 2x
  CHECK(tally.compared[1].kevin == "wrong");
  CHECK(tally.compared[1].reason.find("one tolerance of 0.0001") != std::string::npos);
  CHECK(tally.compared[2].reason.empty());  // neither compiles it
  CHECK(events[1]["disagreement"].is_string());
  CHECK(events[0]["disagreement"].is_null());
  CHECK(events[0]["kernelbench"]["speedup"] == 2.0);
  const std::string text = CompatText(tally.compared, tally.of_kernelbench);
  CHECK(text.find("3 candidates compared, 1 disagree") != std::string::npos);
  CHECK(text.find("no cache is flushed") != std::string::npos);
  CHECK(asked == 3);
  CHECK(f.Judge().compared[1].reason == tally.compared[1].reason);
  CHECK(asked == 3);
}

namespace {

KernelBenchVerdict Correct(double speedup = 2) {
  KernelBenchVerdict verdict;
  verdict.compiled = verdict.correct = true;
  verdict.speedup = speedup;
  return verdict;
}

}  // namespace

TEST_CASE("a verdict of KernelBench is kept for the file that it was judged by") {
  Fixture f;
  const fs::path file = f.work.path() / "checkout/KernelBench/level1/19_ReLU.py";
  Write(file, "one\n");
  std::vector<std::string> asked;
  f.options.judge_as_kernelbench = [&](const PublishedCandidate&, const Problem&, const Workload&,
                                       const std::string& own_file) {
    asked.push_back(own_file);
    return Correct();
  };
  f.Judge();
  CHECK(asked == std::vector<std::string>(3, ""));
  f.options.compat_from = (f.work.path() / "checkout").string();
  asked.clear();
  KernelBenchTally tally = f.Judge();
  CHECK(asked == std::vector<std::string>(2, "one\n"));
  CHECK(tally.compared.size() == 2);
  REQUIRE(tally.not_compared.size() == 1);
  CHECK(tally.not_compared[0].find("has no file of level1/20") != std::string::npos);
  Write(file, "two\n");
  f.Judge();
  CHECK(asked.back() == "two\n");
  CHECK(asked.size() == 4);
  f.Judge();
  f.options.compat_from.clear();
  f.Judge();
  CHECK(asked.size() == 4);
}

TEST_CASE("a failure on KernelBench's side leaves a candidate uncompared, and --most bounds both sides") {
  Fixture f;
  int asked = 0;
  ExitCode code = ExitCode::kMachine;
  f.options.judge_as_kernelbench = [&](const PublishedCandidate& one, const Problem&, const Workload&,
                                       const std::string&) {
    ++asked;
    if (one.sample == 1) throw Error(code, "no sandbox");
    return Correct();
  };
  std::vector<Json> events;
  KernelBenchTally tally = f.Judge(&events);
  CHECK(tally.judged == 3);
  CHECK(tally.compared.size() == 2);
  CHECK(tally.not_compared == std::vector<std::string>{"level_1_problem_19_sample_1_kernel.py: no sandbox"});
  CHECK(events[1]["kernelbench"].is_null());
  CHECK(events[1]["not_compared"] == "no sandbox");
  CHECK(events[0]["not_compared"].is_null());

  // Stored verdicts of Kevin, none of KernelBench.
  fs::remove(f.run / "kevin_compat.jsonl");
  f.options.most = 1;
  asked = 0;
  tally = f.Judge();
  CHECK((asked == 1 && tally.stored == 3 && tally.compared.size() == 1));
  CHECK(tally.not_compared.size() == 2);
  f.options.most = 2;
  f.Judge();
  CHECK(asked == 3);  // the one that fails, and the last one

  f.options.most = 0;
  code = ExitCode::kInterrupted;
  CHECK_THROWS_AS(f.Judge(), Error);
}

TEST_CASE("KernelBench's side of several candidates runs at once") {
  Fixture f;
  std::mutex mutex;
  std::condition_variable changed;
  int inside = 0;
  bool met = false;
  f.options.parallel = 3;
  f.options.judge_as_kernelbench = [&](const PublishedCandidate&, const Problem&, const Workload&,
                                       const std::string&) {
    std::unique_lock lock(mutex);
    met = ++inside == 3 || met;
    changed.notify_all();
    changed.wait_for(lock, std::chrono::seconds(10), [&] { return met; });
    return Correct();
  };
  CHECK(f.Judge().compared.size() == 3);
  CHECK(met);
}

TEST_CASE("once a candidate is loaded, KernelBench's process tells nothing about the machine") {
  const auto read = [](const std::string& script) {
    PythonProcess process({"/bin/sh", "-c", script});
    return ReadKernelBenchVerdict({}, &process);
  };
  const std::string error = R"(echo '{"error": "ImportError: no torch", "machine": true}';)";
  const std::string load = R"(echo '{"phase": "load"}';)";
  CHECK_THROWS_WITH(read(error), Catch::Contains("cannot run in this Python"));
  CHECK_THROWS_WITH(read("exit 125"), Catch::Contains("sandbox"));
  CHECK(read(load + error).reason == "the candidate wrote an error in place of a verdict, in phase load");
  CHECK(read(load + "exit 125").reason.find("exited with status 125, in phase load") != std::string::npos);
  CHECK(read(load + R"(echo '{"phase": "start"}'; exit 125)").reason.find("in phase start") !=
        std::string::npos);
  CHECK_FALSE(read(load + error).correct);
  CHECK(read(load + R"(echo '{"compiled": true, "correct": true, "input_shapes": [[16, 4], []]}')")
            .input_shapes == std::vector<std::vector<int64_t>>{{16, 4}, {}});
}

TEST_CASE("a process that has closed its output and goes on is ended, whoever else holds its errors open") {
  const auto start = std::chrono::steady_clock::now();
  PythonProcess process(
      {"/bin/sh", "-c", R"(echo '{"phase": "load"}'; sleep 40 & exec 0<&- 1>&-; sleep 1000)"});
  const KernelBenchVerdict verdict = ReadKernelBenchVerdict({}, &process);
  CHECK(verdict.reason.find("closed its output and did not end") != std::string::npos);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(60));
}

TEST_CASE("what the two verdicts disagree on") {
  const Json measured = {{"name", "a"},    {"problem", "level1/1"}, {"outcome", "measured"},
                         {"speedup", 1.2}, {"speedup_low", 1.1},    {"speedup_high", 1.3}};
  KernelBenchVerdict verdict;
  verdict.compiled = verdict.correct = true;
  verdict.trials = verdict.trials_passed = 5;
  for (const auto& [speedup, agrees] : {std::pair(1.2, true), {3.0, true}, {0.9, false}}) {
    verdict.speedup = speedup;
    CHECK(Compare(measured, verdict).reason.empty() == agrees);
  }
  // Both say "not faster".
  Json same = measured;
  same["speedup"] = 1.0;
  same["speedup_low"] = 0.97;
  same["speedup_high"] = 1.03;
  same["size"] = "small";
  for (const auto& [speedup, agrees] : {std::pair(0.9, true), {1.02, true}, {1.2, false}}) {
    verdict.speedup = speedup;
    CHECK(Compare(same, verdict).reason.empty() == agrees);
  }
  CHECK(Compare(same, verdict).reason.find("ratio of two means") != std::string::npos);
  verdict.other_shapes = "16 x 16384 in place of 4 x 8";
  CHECK(Compare(same, verdict).reason ==
        "times of other shapes: KernelBench's file has 16 x 16384 in place of 4 x 8 that Kevin took at size "
        "small");
  CHECK(KernelBenchVerdictFromJson(ToJson(verdict)).other_shapes == verdict.other_shapes);
  verdict.other_shapes.clear();

  verdict.correct = false;
  verdict.trials_passed = 3;
  verdict.max_difference = 2e-4;
  verdict.reason = "2 of 5 trials differ by more than 0.0001, the most by 0.0002";
  CHECK(Compare(measured, verdict).reason.find("truth in fp64") != std::string::npos);
  verdict.correct = true;
  CHECK(Compare({{"outcome", "refused"}, {"reason", "deferred work"}}, verdict)
            .reason.find("no such rule: deferred work") != std::string::npos);
}

TEST_CASE("a verdict of KernelBench is read from hostile words") {
  const Json wild = Json::parse(
      R"({"compiled": 1, "correct": "yes", "reason": "\u001b[2J", "trials": 1e300, "speedup": "x", "differs": [1, "a\u0007"]})");
  const KernelBenchVerdict verdict = KernelBenchVerdictFromJson(wild);
  CHECK_FALSE((verdict.compiled || verdict.correct));
  CHECK(verdict.reason.find('\x1b') == std::string::npos);
  CHECK(verdict.trials == 1000000);
  REQUIRE(verdict.differs.size() == 1);
  CHECK(verdict.differs[0].find('\a') == std::string::npos);
}

}  // namespace kevin
