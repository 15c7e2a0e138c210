// What `kevin collect` makes of its command line, and what it shows.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <fstream>

#include "agent/terminal.h"
#include "env/error.h"
#include "env/problem/problem.h"
#include "tests/catch.h"
#include "tests/folders.h"
#include "tests/support/fakes.h"
#include "tools/collection.h"
#include "tools/device_options.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;
using List = std::vector<std::string>;

const fs::path kProblems = SourceFolder() / "env/problems";

List Suite(const std::string& suite) { return ProblemsOfSuite(ProblemSet(kProblems), kProblems, suite); }

std::string ErrorOf(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadRequest);
    return std::string(error.what()) + " | " + error.next_step();
  }
  return "no Error";
}

ProblemResult Result(const std::string& problem, int solved, std::optional<double> best) {
  return {problem, "search", 2, 1, solved, best};
}

RolloutStatus HalfWay() {
  RolloutStatus status;
  status.counts = {6, 2, 3, 1};
  status.running.resize(2);
  status.results = {Result("level1/1", 1, 1.5), Result("level1/2", 1, 3.125), Result("level1/3", 0, {})};
  status.usage = {40, 2'000'000, 500'000, 100};
  status.seconds = 100;
  status.device_s = 50;
  return status;
}

}  // namespace

TEST_CASE("suites name problems by level, range, list and file") {
  CHECK(Suite("level1/19-21") == List{"level1/19", "level1/20", "level1/21"});
  CHECK(Suite("level1/99-103") == List{"level1/99", "level1/100"});  // those that exist
  CHECK(Suite("level1/23, level1/19,level1/23") == List{"level1/23", "level1/19"});
  List first_level = ProblemSet(kProblems).Ids();
  std::erase_if(first_level, [](const std::string& id) { return !id.starts_with("level1/"); });
  CHECK(Suite("level1") == first_level);
  CHECK(Suite("level1/1") == List{"level1/1"});  // not level1/12
  CHECK(Suite("core").size() == 10);
  CHECK(Suite("core").front() == "level1/1");

  const testing::TempFolder folder;
  const fs::path mine = folder.path() / "mine.txt", loop = folder.path() / "loop.txt";
  std::ofstream(mine) << "# a remark\nlevel1/19-20  # two\n\nlevel1/88\n";
  CHECK(Suite(mine.string()) == List{"level1/19", "level1/20", "level1/88"});
  CHECK(Suite("some/problem.toml") == List{"some/problem.toml"});
  std::ofstream(loop) << loop.string() << "\n";
  CHECK(ErrorOf([&] { Suite(loop.string()); }).find("lists itself") != std::string::npos);
  CHECK(ErrorOf([] { Suite("level9"); }).find("--suite level9: no such problems | give a level") == 0);
  CHECK(ErrorOf([] { Suite("level9"); }).find("lists: core") != std::string::npos);
  CHECK(ErrorOf([] { Suite("level1/40-30"); }).find("no such problems") != std::string::npos);
  CHECK(ErrorOf([] { Suite(","); }).find("names no problem") != std::string::npos);
  CHECK(ErrorOf([] { Suite("none.txt"); }).find("cannot be read") != std::string::npos);
}

TEST_CASE("of a level or range, what does not count is left out with the reason; by its own id it stays") {
  const ProblemSet problems(kProblems);
  std::vector<LeftOut> left_out;
  CHECK(ProblemsOfSuite(problems, kProblems, "level2/79-84", &left_out) ==
        List{"level2/79", "level2/81", "level2/82", "level2/84"});
  REQUIRE(left_out.size() == 2);
  CHECK((left_out[0].id == "level2/80" && left_out[1].id == "level2/83"));
  CHECK(left_out[0].reason == "Zeros are the right answer.");
  left_out.clear();
  CHECK(ProblemsOfSuite(problems, kProblems, "level2", &left_out).size() == 98);
  CHECK(left_out.size() == 2);
  left_out.clear();
  CHECK(ProblemsOfSuite(problems, kProblems, "level2/80", &left_out) == List{"level2/80"});
  CHECK(ProblemsOfSuite(problems, kProblems, "test", &left_out).size() == 80);
  CHECK(left_out.empty());
  CHECK(Suite("level2").size() == 100);  // nobody asked to leave any out

  const auto in_16_bits = [&](const std::string& suite) {
    left_out.clear();
    return ProblemsOfSuite(problems, kProblems, suite, &left_out, Precision::kBf16);
  };
  CHECK(in_16_bits("level1/97-99") == List{"level1/97", "level1/99"});
  CHECK((left_out.size() == 1 && left_out[0].reason.find("16 bits") != std::string::npos));
  CHECK(in_16_bits("test").size() == 79);  // a list of ids
  CHECK((left_out.size() == 1 && left_out[0].id == "chains/22"));
  CHECK(in_16_bits("chains/22") == List{"chains/22"});
  CHECK(in_16_bits("level2/80").size() == 1);
}

TEST_CASE("the live line says how far, how fast, how well") {
  const CollectTotals totals{"RUN", 5, 1, 8, 1, 20};
  // 20 turns in 100 s; 8 episodes of 8 turns, less 16 that are more than all of the 3 that are done: 48 more.
  CHECK(ProgressText(HalfWay(), totals, {}) ==
        "4/12 episodes, 2 running, 1 parked | 720 turns/h | solved 2/5 | best 3.12x level1/2 | device busy "
        "50 % | "
        "4 min left");
  RolloutStatus status = HalfWay();
  status.running.resize(1);
  status.draining = true;
  Budget budget;
  budget.dollars_per_million_prompt = 2;
  const std::string text = ProgressText(status, totals, budget);
  CHECK(text.find("1 running, 1 elsewhere") != std::string::npos);
  CHECK(text.find(" | $4.00") != std::string::npos);
  CHECK(text.find("finishing the turns in hand") != std::string::npos);
  const Json event = ProgressEvent(HalfWay(), totals, budget);
  CHECK(
      (event["event"] == "progress" && event["run"] == "RUN" && event["done"] == 3 && event["parked"] == 1));
  CHECK((event["turns_per_hour"] == 720.0 && event["device_busy"] == 0.5 && event["seconds_left"] == 240.0));
  CHECK((event["solved"] == 2 && event["best_problem"] == "level1/2" && event["dollars"] == 4.0));
}

TEST_CASE("the time that is left counts the turns of the episodes that are not ended") {
  RolloutStatus status = HalfWay();  // 20 turns in 100 s
  const CollectTotals totals{"RUN", 5, 1, 8, 1, 20};
  const auto left = [&] { return ProgressEvent(status, totals, {})["seconds_left"].get<double>(); };
  status.counts = {0, 2, 10, 0};
  status.running[0].stored = 3, status.running[1].stored = 5;
  CHECK(left() == 40);  // 8 of 16 turns, though the 10 that are done made 32 in place of 80
  status.usage.turns = 94;
  CHECK(left() == Approx(2 * 100.0 / 74));  // 14 of 16, 6 of them by another process
  status.counts = {0, 0, 12, 0};
  status.running.clear();
  CHECK(left() == 0);
}

TEST_CASE("what is not known yet is left out, and null") {
  RolloutStatus status;
  status.counts.waiting = 3;
  const CollectTotals totals{"RUN", 3, 1, 8, 1, 0};
  CHECK(ProgressText(status, totals, {}) == "0/3 episodes, 0 running | solved 0/3");
  const Json event = ProgressEvent(status, totals, {});
  CHECK((event["turns_per_hour"].is_null() && event["best_speedup"].is_null() &&
         event["seconds_left"].is_null()));
}

TEST_CASE("durations are told in two units at most") {
  CHECK(DurationText(44.6) == "45 s");
  CHECK(DurationText(720) == "12 min");
  CHECK(DurationText(7800) == "2 h 10 min");
  CHECK(DurationText(3 * 86400 + 4 * 3600) == "3 d 4 h");
}

TEST_CASE("what was given up is told once a reason, with how many problems it concerns") {
  std::vector<ProblemResult> results;
  std::vector<ParkedItem> parked;
  for (const char* problem : {"level1/1", "level1/2", "level1/3"}) {
    ProblemResult result;
    result.problem = problem;
    results.push_back(result);
    for (int number = 1; number <= 2 && results.size() > 1; ++number) {
      ParkedItem item;
      item.spec = fmt::format(
          R"({{"problem":"{}","problem_hash":"h","policy":"search","number":{},"seed":"0","turns":8}})",
          problem, number);
      item.error = std::string(problem) + ": cannot write `conv2d`";
      parked.push_back(item);
    }
  }
  CHECK(EndText(results, parked, {})
            .find("parked    2 of 3 problems (level1/2, level1/3), 4 episodes: cannot write `conv2d`\n") !=
        std::string::npos);
}

TEST_CASE("a run that another device has to end says which") {
  RolloutEnd end;
  CHECK(EndText({}, {}, end).find("Stopped; the same command continues the run") != std::string::npos);
  end.left_to = {"EPYC, 2 threads", "EPYC, 4 threads"};
  CHECK(EndText({}, {}, end).find("were begun on EPYC, 2 threads and on EPYC, 4 threads, and only") !=
        std::string::npos);
}

TEST_CASE("several devices are chosen, each once") {
  const GpuFinder two = [](std::string*) {
    std::vector<GpuFound> gpus(3);
    for (GpuFound& gpu : gpus) gpu.capability_major = 9, gpu.driver_version = 13000;
    gpus[1].index = 1;
    gpus[2].index = 2;
    gpus[1].compute_mode = 3;  // taken by somebody for himself
    return gpus;
  };
  const GpuFinder none = [](std::string* why) {
    *why = "no driver";
    return std::vector<GpuFound>();
  };
  CHECK(ChooseDevices({"cuda:1", "cuda:0", "cuda:1"}, {}, "", two) == List{"cuda:1", "cuda:0"});
  CHECK(ChooseDevices({"all"}, {}, "", two) == List{"cuda:0", "cuda:2"});
  CHECK(ChooseDevices({}, {}, "", none) == List{"cpu"});
  CHECK_THROWS_AS(ChooseDevices({"all"}, {}, "", none), Error);
  CHECK_THROWS_AS(ChooseDevices({"cpu", "cuda:0"}, {}, "cpp", two), Error);
}

TEST_CASE("with patience the first signal asks to drain, the second to stop") {
  const InterruptGuard guard(2);
  std::raise(SIGINT);
  CHECK((*guard.flag() && !*guard.again()));
  std::raise(SIGINT);
  CHECK(*guard.again());
}

}  // namespace kevin
