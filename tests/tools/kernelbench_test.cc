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

#include "env/error.h"
#include "env/process/spawn.h"
#include "tests/catch.h"
#include "tests/tools/kernelbench_fixture.h"
#include "tools/kernelbench_candidates.h"
#include "tools/kernelbench_results.h"
#include "tools/kernelbench_run.h"

namespace kevin {
namespace {

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
  Write(
      folder / "data.json",
      R"({"Level 1: 19_ReLU": [{"file": "ff", "display_name": "b"}, {"file": "0a1b", "display_name": "b"}]})");
  CHECK(
      Ids(ReadPublishedCandidates(folder)) ==
      std::vector<std::string>{"level1/19#0 Level 1: 19_ReLU, b", "level1/19#1 Level 1: 19_ReLU, b (0a1b)"});
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
  CHECK(first["metadata"]["kevin"]["rules"] == "kevin");
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

TEST_CASE("what cannot be judged does not use up --most") {
  Fixture f;
  Write(f.run / "level_1_problem_1_sample_0_kernel.py", "// error\n");
  f.options.most = 1;
  const KernelBenchTally tally = f.Judge();
  CHECK((tally.judged == 1 && tally.left_out.size() == 1));
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
  // And one problem, however many candidates it has.
  for (const char* sample : {"1", "2", "3", "4"})
    Write(f.run / (std::string("level_1_problem_21_sample_") + sample + "_kernel.py"), "// error\n");
  tally = f.Judge();
  CHECK((tally.stored == 2 && tally.left_out.size() == 5));
  // Several problems, one after the other, are the machine's fault.
  for (const char* number : {"22", "23", "24"})
    Write(f.run / (std::string("level_1_problem_") + number + "_sample_1_kernel.py"), "// error\n");
  CHECK_THROWS_AS(f.Judge(), Error);
  for (const char* number : {"22", "23", "24"})
    fs::remove(f.run / (std::string("level_1_problem_") + number + "_sample_1_kernel.py"));
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

// Each evaluation starts a process, as one that needs a reference or a builder does.
class SpawningEnvironment : public MeetingEnvironment {
 public:
  Evaluation EvaluateShape(const Problem& problem, const Candidate& candidate,
                           const EvaluateOptions& options) override {
    {
      const std::lock_guard lock(mutex_);
      children.push_back(Spawn({.argv = {"/bin/sleep", "60"}, .environment = {}, .descriptors = {}}));
    }
    return MeetingEnvironment::EvaluateShape(problem, candidate, options);
  }

  std::vector<ChildProcess> children;

 private:
  std::mutex mutex_;
};

}  // namespace

TEST_CASE("processes that one worker of a run started outlive it") {
  Fixture f;
  SpawningEnvironment environment;
  environment.facts = f.environment.facts;
  environment.expected = f.options.parallel = 3;
  KernelBenchResults results(f.run);
  JudgePublished(
      ReadPublishedCandidates(f.run), Fixture::Find, environment, results, f.options, [](const Json&) {},
      nullptr);
  REQUIRE(environment.most == 3);
  for (ChildProcess& child : environment.children) {
    int status = 0;
    CHECK_FALSE(child.Wait(0.1, &status));
  }
}

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

TEST_CASE("a candidate is judged at the size that was asked for, or left out") {
  Fixture f;
  f.options.size = "v0";
  Write(f.run / "level_1_problem_21_sample_0_kernel.py", "// measured 2\n");
  const auto find = [](const std::string& id) {
    Problem problem = Fixture::Find(id);
    if (id == "level1/19") problem.model.emplace().first_shapes = "full";
    if (id == "level1/21") problem.sizes["v0"] = {{"B", 2}, {"N", 8}};
    return problem;
  };
  std::vector<std::string> of_kernelbench, of_events;
  f.options.judge_as_kernelbench = [&](const PublishedCandidate&, const Problem&, const Workload& workload,
                                       const std::string&) {
    of_kernelbench.push_back(workload.size);
    return KernelBenchVerdict();
  };
  const auto judge = [&] {
    KernelBenchResults results(f.run);
    return JudgePublished(
        ReadPublishedCandidates(f.run), find, f.environment, results, f.options,
        [&](const Json& event) { of_events.push_back(event["size"]); }, nullptr);
  };
  const KernelBenchTally tally = judge();
  CHECK((tally.candidates == 4 && tally.judged == 3));
  CHECK(tally.left_out == std::vector<std::string>{"level_1_problem_20_sample_0_kernel.py: level1/20 has no "
                                                   "size 'v0'; its sizes: full, small"});
  // Once for two candidates.
  CHECK(tally.sizes ==
        std::vector<std::string>{"level1/19 is judged at full: it has no size 'v0' of its own, "
                                 "because KernelBench's shapes have not changed"});
  const std::vector<std::string> sizes{"full", "full", "v0"};
  CHECK(of_events == sizes);
  CHECK(of_kernelbench == sizes);
  CHECK(tally.compared.size() == 3);
  const Json written = Json::parse(Read(f.run / "eval_results.json"));
  CHECK(written["19"][1]["metadata"]["kevin"]["size"] == "full");
  CHECK(written["21"][0]["metadata"]["kevin"]["size"] == "v0");
  CHECK_FALSE(written.contains("20"));

  const KernelBenchTally again = judge();
  CHECK((again.stored == 3 && again.sizes == tally.sizes && again.left_out == tally.left_out));
  f.options.size = "medium";
  CHECK(judge().left_out.size() == 4);
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
