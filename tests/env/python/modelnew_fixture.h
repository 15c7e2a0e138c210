#pragma once
// Judging a candidate in Python on a CPU, whole, in one environment for all cases of a test program.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "env/cpu/cpu_environment.h"
#include "tests/catch.h"
#include "tests/env/cpu/cpu_fixture.h"
#include "tests/folders.h"

namespace kevin {

inline constexpr const char* kLongCalls = "level1/19";
// Of many short calls, where work can be deferred or done ahead.
inline const std::string kShortCalls =
    (SourceFolder() / "tests/env/cpu/red_team/problems/short_calls.toml").string();

inline std::filesystem::path Folder() { return SourceFolder() / "tests/env/python/red_team"; }

inline std::vector<std::filesystem::path> CandidatesIn(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".py") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

inline std::unique_ptr<CpuEnvironment> NewEnvironment(const TemporaryFolder& cache, double call_timeout_s) {
  EnvironmentOptions options = SmallLimits(cache.path());
  options.limits.call_timeout_s = call_timeout_s;
  options.limits.compile_timeout_s = 240;
  options.limits.max_memory_mb = 2048;  // addresses: 72 MB for each thread that a candidate starts
  return MakeCpuEnvironmentForTools(options);
}

inline CpuEnvironment& PythonEnvironment() {
  static const TemporaryFolder cache;
  static const std::unique_ptr<CpuEnvironment> environment = NewEnvironment(cache, 5);
  return *environment;
}

inline Outcome Judged(const std::filesystem::path& file, const std::string& problem, bool whole) {
  const Candidate candidate{"modelnew", TextOf(file)};
  EvaluateOptions options;
  options.workload.rules = "open";
  const Outcome outcome =
      whole ? PythonEnvironment().Evaluate(ListedProblem(problem), candidate, options).outcome
            : PythonEnvironment().Verify(ListedProblem(problem), candidate, options);
  std::printf("%-28s %-14s %s\n", file.stem().c_str(), OutcomeName(outcome), Described(outcome).c_str());
  std::fflush(stdout);
  return outcome;
}

}  // namespace kevin
