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

inline constexpr double kGraphLimitS = 60;  // of one graph; the slowest of the listed problems takes 2
inline constexpr int64_t kGraphCacheBytes = int64_t{64} << 20;  // on disk; the least recently used go first

// Thread-safe. Several processes may share the cache: files are written whole, and one that is damaged is written again.
class GraphSource {
 public:
  // The folders of EnvironmentOptions.
  GraphSource(const std::filesystem::path& program_directory, const std::filesystem::path& cache_directory,
              double limit_s = kGraphLimitS);
  ~GraphSource();
  // The JSON text at one size; the problem is in its precision. Throws Error as ReferenceGraph does, and
  // Error(kBadRequest) when a graph takes longer than the limit, and Error(kBroken) when the process ends.
  std::string Graph(const Problem& problem, const std::string& size);

 private:
  std::filesystem::path folder_;
  std::unique_ptr<SharedEvaluator> evaluator_;
};

}  // namespace kevin
