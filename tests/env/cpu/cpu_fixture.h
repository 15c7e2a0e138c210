#pragma once
// What the tests of the CPU environment share: the built programs, a cache of their own, small limits.

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "env/environment.h"

namespace kevin {

inline std::filesystem::path BuiltPrograms() { return std::filesystem::path(KEVIN_BINARY_DIR) / "bin"; }

inline Problem ListedProblem(const std::string& id) {
  static const ProblemSet problems(std::filesystem::path(KEVIN_SOURCE_DIR) / "env/problems");
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

}  // namespace kevin
