#pragma once
// Graphs of references (env/reference/graph.h) for programs without torch: from the cache folder, else from a
// process of kevin-evaluator, which is started with the first graph that is not there and stays.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "env/problem/problem.h"

namespace kevin {

class SharedEvaluator;

inline constexpr int64_t kGraphCacheBytes = int64_t{64} << 20;  // on disk; the least recently used go first

// Thread-safe. Several processes may share the cache.
class GraphSource {
 public:
  // The folders of EnvironmentOptions.
  GraphSource(const std::filesystem::path& program_directory, const std::filesystem::path& cache_directory);
  ~GraphSource();
  // The JSON text at one size; the problem is in its precision. Throws Error as ReferenceGraph does, and
  // Error(kBroken) when the process ends.
  std::string Graph(const Problem& problem, const std::string& size);

 private:
  std::filesystem::path folder_;
  std::unique_ptr<SharedEvaluator> evaluator_;
};

}  // namespace kevin
