// Published candidates: the forms they come in, judging them with a fake environment, continuing, KernelBench's file of
// results.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <sstream>

#include "env/error.h"
#include "env/process/files.h"
#include "env/python/kernelbench_judge.h"
#include "env/python/python_process.h"
#include "tests/catch.h"
#include "tests/support/fakes.h"
#include "tools/kernelbench_candidates.h"
#include "tools/kernelbench_results.h"
#include "tools/kernelbench_run.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

void Write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

std::string Read(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::string Complaint(const fs::path& path) {
  try {
    ReadPublishedCandidates(path);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadRequest);
    CHECK_FALSE(error.next_step().empty());
    return error.what();
  }
  return "";
}

std::vector<std::string> Ids(const PublishedCandidates& all) {
  std::vector<std::string> ids;
  for (const PublishedCandidate& one : all.candidates)
    ids.push_back(one.problem + "#" + std::to_string(one.sample) + " " + one.name);
  return ids;
}

// A run with two levels; the fake environment judges by the first line.
struct Fixture {
  WorkFolder work{fs::temp_directory_path(), "kernelbench"};
  fs::path run = work.path() / "run";
  testing::FakeEnvironment environment;
  KernelBenchRunOptions options;

  Fixture() {
    Write(run / "level_1_problem_19_sample_0_kernel.py", "// measured 2\nclass ModelNew: pass\n");
    Write(run / "level_1_problem_19_sample_1_kernel.py", "// wrong\n");
    Write(run / "level_1_problem_20_sample_0_kernel.py", "// broken\n");
    environment.facts.kinds = {"cpp", "modelnew"};
    options.size = "small";
  }

  static Problem Find(const std::string& id) {
    if (!id.starts_with("level1/")) throw Error(ExitCode::kBadRequest, "no problem " + id, "");
    Problem problem = testing::ReluProblem();
    problem.id = id;
    problem.content_hash += id;
    return problem;
  }

  KernelBenchTally Judge(std::vector<Json>* events = nullptr, const std::atomic<bool>* stop = nullptr) {
    KernelBenchResults results(run);
    return JudgePublished(
        ReadPublishedCandidates(run), Find, environment, results, options,
        [&](const Json& event) {
          if (events != nullptr) events->push_back(event);
        },
        stop);
  }
};

}  // namespace

TEST_CASE("a run of KernelBench: files by level, problem and sample") {
  Fixture f;
  Write(f.run / "level_2_problem_100_sample_12_kernel.py", "code\n");
  Write(f.run / "level_1_problem_3_sample_0_kernel.py", "  \n");
  for (const char* name :
       {"level_1_problem_1_sample_0_kernel.txt", "level_x_problem_1_sample_0_kernel.py", "notes.py",
        "level_1_problem_1_sample_-1_kernel.py", "level_1_problem_99999999999_sample_0_kernel.py"})
    Write(f.run / name, "code\n");
  const PublishedCandidates all = ReadPublishedCandidates(f.run);
  CHECK(Ids(all) == std::vector<std::string>{"level1/19#0 level_1_problem_19_sample_0_kernel.py",
                                             "level1/19#1 level_1_problem_19_sample_1_kernel.py",
                                             "level1/20#0 level_1_problem_20_sample_0_kernel.py",
                                             "level2/100#12 level_2_problem_100_sample_12_kernel.py"});
  CHECK(all.left_out == std::vector<std::string>{"level_1_problem_3_sample_0_kernel.py: it has no code"});
  CHECK(all.candidates[0].source == "// measured 2\nclass ModelNew: pass\n");
}

TEST_CASE("runs in folders of their own: the level from the folder's name, equal numbers are counted") {
  const WorkFolder work(fs::temp_directory_path(), "kernelbench");
  const fs::path run = work.path() / "opus_level2_20250903";
  for (const char* name :
       {"problem_7_kernel.py", "problem_7.py", "level_1/problem_3.py",
        "level_1/raw/problem_3_sample_4_kernel.py", "x/level_3_problem_5_solution_1_kernel.py",
        "level_1/problem_3.txt", "problem_x.py", "problem_7_sample_.py",
        "a/b/c/d/level_1_problem_1_sample_0_kernel.py"})
    Write(run / name, std::string("# ") + name + "\n");
  const PublishedCandidates all = ReadPublishedCandidates(run);
  CHECK(Ids(all) == std::vector<std::string>{"level1/3#0 level_1/problem_3.py",
                                             "level1/3#4 level_1/raw/problem_3_sample_4_kernel.py",
                                             "level2/7#0 problem_7.py", "level2/7#1 problem_7_kernel.py",
                                             "level3/5#1 x/level_3_problem_5_solution_1_kernel.py"});
  fs::create_directory_symlink(work.path(), run / "level_1" / "loop");
  CHECK(ReadPublishedCandidates(run).candidates.size() == 5);
}

TEST_CASE("KernelBench's own results stay, and Kevin's go beside them") {
  Fixture f;
  Write(f.run / "eval_results.json", "{\"19\": [{\"compiled\": true}]}");
  CHECK(HasResultsOfOthers(f.run));
  CHECK_THROWS_AS(KernelBenchResults(f.run), Error);
  CHECK_FALSE(HasResultsOfOthers(f.run / "kevin"));
  CHECK_FALSE(HasResultsOfOthers(f.work.path()));
}

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

TEST_CASE("the leaderboard's folder names its files, and no others") {
  const WorkFolder work(fs::temp_directory_path(), "kernelbench");
  const fs::path folder = work.path() / "assets";
  Write(folder / "solutions" / "0a1b.py", "one\n");
  Write(folder / "solutions" / "ff.py", "two\n");
  Write(work.path() / "secret.py", "secret\n");
  Write(folder / "data.json", R"({"Level 1: 19_ReLU": [{"file": "ff", "display_name": "b"}, {"file": "0a1b"}],
    "Level 3: 5_AlexNet": [{"file": "../../secret"}, {"file": "absent"}, 7], "Levels": []})");
  const PublishedCandidates all = ReadPublishedCandidates(folder);
  CHECK(Ids(all) ==
        std::vector<std::string>{"level1/19#0 Level 1: 19_ReLU, b", "level1/19#1 Level 1: 19_ReLU, "});
  CHECK(all.candidates[0].source == "two\n");
  CHECK(all.left_out.size() == 4);
}

TEST_CASE("rows: lines, arrays, levels; the leaderboard counts problems from 0") {
  const WorkFolder work(fs::temp_directory_path(), "kernelbench");
  const auto file = [&](const std::string& text) {
    Write(work.path() / "rows.json", text);
    return work.path() / "rows.json";
  };
  const PublishedCandidates lines = ReadPublishedCandidates(file(
      "{\"level_id\": 1, \"task_id\": 19, \"ref_code\": \"r\", \"custom_code\": \"a\"}\n\n"
      "{\"level_id\": 1, \"task_id\": 2, \"custom_code\": null}\n{\"level_id\": 2, \"task_id\": 1, \"code\": \"b\"}\n"
      "{\"level_id\": 2, \"task_id\": 1, \"code\": \"c\"}\n{broken\n"));
  CHECK(Ids(lines) ==
        std::vector<std::string>{"level1/19#0 line 1", "level2/1#0 line 4", "level2/1#1 line 5"});
  CHECK(lines.candidates[0].source == "a");
  CHECK(lines.left_out == std::vector<std::string>{"line 3: it has no code", "line 6: it is not an object"});

  const PublishedCandidates board = ReadPublishedCandidates(file(
      "[{\"problem_id\": 18, \"level\": 1, \"code\": \"x\", \"display_name\": \"m\\u001b[31m\"}, {\"level\": 1}]"));
  REQUIRE(board.candidates.size() == 1);
  CHECK(board.candidates[0].problem == "level1/19");
  CHECK(board.candidates[0].name.find('\x1b') == std::string::npos);
  CHECK(board.left_out.size() == 1);

  const PublishedCandidates levels =
      ReadPublishedCandidates(file("{\n\"1\": [{\"task_id\": 4, \"custom_code\": \"x\"}], \"3\": []\n}"));
  CHECK(Ids(levels) == std::vector<std::string>{"level1/4#0 level 1, row 1"});
}

TEST_CASE("a run with too many candidates is not read in part") {
  Fixture f;
  CHECK(ReadPublishedCandidates(f.run, 3).candidates.size() == 3);
  CHECK_THROWS_WITH(ReadPublishedCandidates(f.run, 2), Catch::Contains("has more than 2 candidates"));
}

TEST_CASE("what has none of the forms is named") {
  const WorkFolder work(fs::temp_directory_path(), "kernelbench");
  CHECK(Complaint(work.path()).find("has no candidates") != std::string::npos);
  CHECK(Complaint(work.path() / "absent").find("No such file") != std::string::npos);
  Write(work.path() / "x", "hello\n");
  CHECK(Complaint(work.path() / "x").find("is no JSON") != std::string::npos);
  Write(work.path() / "x", "{\"one\": 1}");
  CHECK(Complaint(work.path() / "x").find("has none of the forms") != std::string::npos);
  Write(work.path() / "x", "");
  CHECK(Complaint(work.path() / "x").find("has no candidates") != std::string::npos);
  Write(work.path() / "data.json", "[]");
  CHECK(Complaint(work.path()).find("is not a JSON object of problems") != std::string::npos);
}

TEST_CASE("a run is judged once, and eval_results.json has KernelBench's form") {
  Fixture f;
  std::vector<Json> events;
  const KernelBenchTally tally = f.Judge(&events);
  CHECK((tally.candidates == 3 && tally.judged == 3 && tally.stored == 0));
  CHECK((tally.compiled == 2 && tally.correct == 1 && tally.faster == 1));
  CHECK(tally.outcomes == std::map<std::string, int>{{"compile_failed", 1}, {"measured", 1}, {"wrong", 1}});
  REQUIRE(events.size() == 3);
  CHECK(events[0]["event"] == "evaluation");
  CHECK(events[0]["kind"] == "modelnew");
  CHECK(events[1]["sample"] == 1);

  const Json results = Json::parse(Read(f.run / "eval_results.json"));
  REQUIRE(results.size() == 2);
  REQUIRE(results["19"].size() == 2);
  const Json& first = results["19"][0];
  CHECK((first["sample_id"] == 0 && first["compiled"] == true && first["correctness"] == true));
  CHECK(first["runtime"] == 0.01);  // 100 us of ten calls, in ms
  CHECK(first["runtime_stats"]["num_trials"] == 1);
  CHECK(first["metadata"]["kevin"]["speedup"] == 2.0);
  const Json& second = results["19"][1];
  CHECK((second["compiled"] == true && second["correctness"] == false && second["runtime"] == -1.0));
  CHECK(second["metadata"]["correctness_issue"].get<std::string>().find("out[0, 3]") == 0);
  CHECK(results["20"][0]["metadata"].contains("compilation_error"));

  const size_t calls = f.environment.calls.size();
  const KernelBenchTally again = f.Judge();
  CHECK((again.judged == 0 && again.stored == 3 && again.correct == 1));
  CHECK(f.environment.calls.size() == calls);
}

TEST_CASE("a run that was broken off continues where it stopped") {
  Fixture f;
  f.options.most = 1;
  CHECK(f.Judge().judged == 1);
  // The machine stopped within the next line.
  std::ofstream(f.run / "kevin_results.jsonl", std::ios::app) << "{\"name\": \"level_1_problem_19_sam";
  CHECK(f.Judge().stored == 1);
  f.options.most = 0;
  const KernelBenchTally rest = f.Judge();
  CHECK((rest.judged == 1 && rest.stored == 2));
  CHECK(f.environment.calls.size() == 3);
  // Another text under the same name is another candidate, another size another verdict.
  Write(f.run / "level_1_problem_19_sample_1_kernel.py", "// measured 3\n");
  CHECK(f.Judge().judged == 1);
  CHECK(Json::parse(Read(f.run / "eval_results.json"))["19"][1]["correctness"] == true);
  f.options.size = "full";
  CHECK(f.Judge().judged == 3);
  const std::atomic<bool> stop = true;
  f.options.size = "small";
  CHECK(f.Judge(nullptr, &stop).stored == 0);
}

TEST_CASE("infrastructure that breaks keeps what was judged") {
  Fixture f;
  Write(f.run / "level_1_problem_19_sample_1_kernel.py", "// error\n");
  // One candidate that cannot be judged is left out.
  KernelBenchTally tally = f.Judge();
  CHECK(tally.judged == 2);
  REQUIRE(tally.left_out.size() == 1);
  CHECK(tally.left_out[0].starts_with("level_1_problem_19_sample_1_kernel.py: "));
  CHECK(Json::parse(Read(f.run / "eval_results.json"))["19"].size() == 1);
  // Several, one after the other, are the machine's fault.
  for (const char* sample : {"1", "2", "3", "4"})
    Write(f.run / (std::string("level_1_problem_21_sample_") + sample + "_kernel.py"), "// error\n");
  CHECK_THROWS_AS(f.Judge(), Error);
  CHECK(Json::parse(Read(f.run / "eval_results.json"))["20"].size() == 1);
  for (const char* sample : {"1", "2", "3", "4"})
    Write(f.run / (std::string("level_1_problem_21_sample_") + sample + "_kernel.py"), "// wrong\n");
  Write(f.run / "level_1_problem_19_sample_1_kernel.py", "// wrong\n");
  tally = f.Judge();
  CHECK(tally.stored == 2);
  CHECK(tally.judged == 5);
}

namespace {

// Evaluations wait for each other, at most 10 s.
class MeetingEnvironment : public testing::FakeEnvironment {
 public:
  Evaluation EvaluateShape(const Problem& problem, const Candidate& candidate,
                           const EvaluateOptions& options) override {
    {
      std::unique_lock lock(mutex_);
      most = std::max(most, ++inside_);
      if (inside_ == expected) met_ = true;
      changed_.notify_all();
      changed_.wait_for(lock, std::chrono::seconds(10), [&] { return met_; });
      --inside_;
    }
    return FakeEnvironment::EvaluateShape(problem, candidate, options);
  }

  int expected = 1, most = 0;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int inside_ = 0;
  bool met_ = false;
};

}  // namespace

TEST_CASE("candidates of a run are judged at once where that is asked for, each of them once") {
  Fixture f;
  MeetingEnvironment environment;
  environment.facts = f.environment.facts;
  environment.expected = f.options.parallel = 3;
  for (int sample = 1; sample < 9; ++sample)
    Write(f.run / fmt::format("level_1_problem_21_sample_{}_kernel.py", sample), "// measured 1.1\n");
  const auto judge = [&](std::set<std::string>* names) {
    KernelBenchResults results(f.run);
    return JudgePublished(
        ReadPublishedCandidates(f.run), Fixture::Find, environment, results, f.options,
        [&](const Json& event) { names->insert(event["name"].get<std::string>()); }, nullptr);
  };
  std::set<std::string> names;
  const KernelBenchTally tally = judge(&names);
  CHECK(environment.most == 3);
  CHECK(tally.judged == 11);
  CHECK(tally.outcomes.at("measured") == 9);
  CHECK(names.size() == 11);
  CHECK(environment.calls.size() == 11);
  CHECK(Json::parse(Read(f.run / "eval_results.json"))["21"].size() == 8);
  CHECK(judge(&names).stored == 11);
  CHECK(environment.calls.size() == 11);

  f.options.most = 2;
  for (int sample = 9; sample < 14; ++sample)
    Write(f.run / fmt::format("level_1_problem_21_sample_{}_kernel.py", sample), "// measured 1.1\n");
  CHECK(judge(&names).judged == 2);
}

TEST_CASE("several levels have a file each; unknown problems and sizes are left out") {
  Fixture f;
  Write(f.run / "level_4_problem_1_sample_0_kernel.py", "// measured 1\n");
  KernelBenchTally tally = f.Judge();
  CHECK(tally.left_out ==
        std::vector<std::string>{"level_4_problem_1_sample_0_kernel.py: there is no problem level4/1"});
  CHECK(tally.judged == 3);

  const auto any = [](const std::string& id) {
    Problem problem = testing::ReluProblem();
    problem.id = id;
    if (id != "level1/20") return problem;
    problem.model.emplace();
    problem.model->sizes = {"full"};
    return problem;
  };
  KernelBenchResults results(f.work.path() / "results");
  tally = JudgePublished(ReadPublishedCandidates(f.run), any, f.environment, results, f.options, {}, nullptr);
  CHECK(tally.judged == 3);
  REQUIRE(tally.left_out.size() == 1);
  CHECK(tally.left_out[0].find("other widths at size small; use --size full") != std::string::npos);
  CHECK_FALSE(fs::exists(f.work.path() / "results" / "eval_results.json"));
  CHECK(Json::parse(Read(f.work.path() / "results" / "eval_results_level_1.json"))["19"].size() == 2);
  CHECK(Json::parse(Read(f.work.path() / "results" / "eval_results_level_4.json"))["1"].size() == 1);
}

TEST_CASE("files of others are not touched, and a broken line is named") {
  Fixture f;
  Write(f.run / "eval_results.json", R"({"19": [{"sample_id": 0, "metadata": {}}]})");
  CHECK_THROWS_WITH(KernelBenchResults(f.run), Catch::Contains("another program wrote it"));
  fs::remove(f.run / "eval_results.json");
  Write(f.run / "kevin_results.jsonl", "{\"name\": 1}\n");
  CHECK_THROWS_WITH(KernelBenchResults(f.run), Catch::Contains("kevin_results.jsonl:1: no stored result"));
}

}  // namespace kevin
