#pragma once
// What the tests of the CPU environment share: the built programs, a cache of their own, small limits.

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "env/environment.h"
#include "tests/folders.h"

namespace kevin {

inline std::filesystem::path BuiltPrograms() { return BinaryFolder() / "bin"; }

inline Problem ListedProblem(const std::string& id) {
  static const ProblemSet problems(SourceFolder() / "env/problems");
  return problems.Find(id);
}

inline std::string TextOf(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "kevin-test-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline EnvironmentOptions SmallLimits(const std::filesystem::path& cache) {
  EnvironmentOptions options;
  options.program_directory = BuiltPrograms();
  options.cache_directory = cache;
  options.limits.call_timeout_s = 2;
  options.limits.max_memory_mb = 512;
  return options;
}

// What both red teams, the CPU's and the GPU's, print of a candidate, and when it has gained from an attack.

inline constexpr double kGain = 1.05;  // the whole interval above it: an undue speed-up

inline bool SeemsFaster(const Outcome& outcome) {
  const auto* measured = std::get_if<Measured>(&outcome);
  return measured && measured->speedup.low > kGain;
}

inline std::string Described(const Outcome& outcome) {
  if (const auto* measured = std::get_if<Measured>(&outcome)) {
    char text[80];
    std::snprintf(text, sizeof(text), "%.3fx [%.3f, %.3f]", measured->speedup.value, measured->speedup.low,
                  measured->speedup.high);
    return text;
  }
  return OutcomeReason(outcome).substr(0, 110);
}

inline void Print(const std::string& name, const Outcome& outcome) {
  std::printf("  %-32s %-14s %s\n", name.c_str(), OutcomeName(outcome), Described(outcome).c_str());
  std::fflush(stdout);
}

}  // namespace kevin
