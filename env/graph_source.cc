#include "env/graph_source.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "env/error.h"
#include "env/problem/precision.h"
#include "env/problem/text.h"
#include "env/process/evaluator_client.h"
#include "env/process/files.h"
#include "env/process/runner_protocol.h"
#include "env/process/spawn.h"
#include "env/reference/graph.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGraphTorch = "2.11.0";
constexpr const char* kLate = "the graph of the reference is not ready after";
constexpr double kGraphsKept = 0.9;  // of the limit, after an eviction

std::string GraphKey(const Problem& problem, const std::string& size) {
  return Sha256Hex(problem.content_hash + "\n" + size + "\n" + PrecisionName(PrecisionOf(problem)) + "\n" +
                   kGraphTorch + "\n" + std::to_string(kGraphFormat) + "\n" + problem.reference);
}

std::string FileText(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct CachedGraph {
  fs::path path;
  int64_t bytes = 0;
  fs::file_time_type used;
};

void EvictGraphs(const fs::path& folder) {
  std::error_code error;
  std::vector<CachedGraph> graphs;
  int64_t bytes = 0;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code gone;
    CachedGraph graph{at->path(), static_cast<int64_t>(at->file_size(gone)), at->last_write_time(gone)};
    if (gone) continue;
    bytes += graph.bytes;
    graphs.push_back(std::move(graph));
  }
  if (bytes <= kGraphCacheBytes) return;
  std::sort(graphs.begin(), graphs.end(),
            [](const CachedGraph& a, const CachedGraph& b) { return a.used < b.used; });
  const auto kept = static_cast<int64_t>(kGraphsKept * static_cast<double>(kGraphCacheBytes));
  for (const CachedGraph& graph : graphs) {
    if (bytes <= kept) return;
    fs::remove(graph.path, error);
    bytes -= graph.bytes;
  }
}

// A file has the digest of its text, a line feed and the text.
std::string GraphIn(const fs::path& path) {
  const std::string file = FileText(path);
  const size_t end = file.find('\n');
  if (end == std::string::npos) return "";
  std::string text = file.substr(end + 1);
  return Sha256Hex(text) == file.substr(0, end) ? text : "";
}

// A cache that cannot be written to costs time only.
void StoreGraph(const fs::path& path, const std::string& text) {
  static std::atomic<int> count = 0;
  try {
    fs::create_directories(path.parent_path());
    const fs::path part = fmt::format("{}.{}.{}.part", path.string(), getpid(), count++);
    WriteFile(part.string(), Sha256Hex(text) + "\n" + text, true);
    fs::rename(part, path);
    EvictGraphs(path.parent_path());
  } catch (const std::exception&) {
  }
}

}  // namespace

GraphSource::GraphSource(const fs::path& program_directory, const fs::path& cache_directory, double limit_s)
    : folder_(cache_directory / "graphs"),
      evaluator_(std::make_unique<SharedEvaluator>([program_directory, limit_s] {
        const fs::path program = RequireProgram(program_directory, "kevin-evaluator");
        auto client = std::make_unique<EvaluatorClient>(
            std::vector<std::string>{program.string(), "serve-graphs"}, TrustedEnvironment(1));
        client->LimitAnswers(limit_s, fmt::format("{} {:.3g} s", kLate, limit_s),
                             "shorten its loops and lists");
        return client;
      })) {}

GraphSource::~GraphSource() = default;

std::string GraphSource::Graph(const Problem& problem, const std::string& size) {
  const fs::path path = folder_ / (GraphKey(problem, size) + ".json");
  if (std::string text = GraphIn(path); !text.empty()) {
    std::error_code error;
    fs::last_write_time(path, fs::file_time_type::clock::now(), error);
    return text;
  }
  double wait_s = 0;
  nlohmann::json answer;
  try {
    answer = evaluator_->AskOrThrow({{"command", "graph"},
                                     {"problem_text", problem.text},
                                     {"problem_path", problem.path.string()},
                                     {"precision", PrecisionName(PrecisionOf(problem))},
                                     {"size", size}},
                                    {}, nullptr, &wait_s);
  } catch (const Error& error) {
    const std::string what = error.what();
    throw Error(error.code(), what.starts_with(kLate) ? problem.id + ": " + what : what, error.next_step());
  }
  const std::string text = answer.at("graph");
  StoreGraph(path, text);
  return text;
}

}  // namespace kevin
