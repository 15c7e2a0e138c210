#pragma once
// What the tests of `kevin bench --kernelbench` share: a run of KernelBench in a temporary folder, judged by a fake environment.

#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "env/error.h"
#include "env/process/files.h"
#include "tests/support/fakes.h"
#include "tools/kernelbench_candidates.h"
#include "tools/kernelbench_results.h"
#include "tools/kernelbench_run.h"

namespace kevin {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

inline void Write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string Read(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
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

}  // namespace kevin
