// The cache of graphs: hits, other keys, damaged files, several processes, the limits of size and time.

#include "env/graph_source.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>

#include "env/error.h"
#include "env/problem/precision.h"
#include "env/process/spawn.h"
#include "tests/catch.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

// A folder that goes with the test.
struct CacheFolder {
  CacheFolder() {
    std::string pattern = (fs::temp_directory_path() / "kevin-graphs-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path = pattern;
  }
  ~CacheFolder() { fs::remove_all(path); }
  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(path / "graphs")) files.push_back(entry.path());
    return files;
  }
  fs::path path;
};

// One whose program is missing: it can only answer from the cache.
GraphSource CacheOnly(const CacheFolder& folder) { return GraphSource(folder.path / "none", folder.path); }

Problem Relu() { return ProblemSet(ProblemSet::DefaultDirectory()).Find("level1/19"); }

Problem WithText(const std::string& text) { return ParseProblem(text, "mine.toml"); }

std::string Changed(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

bool IsCached(const CacheFolder& folder, const Problem& problem, const std::string& size) {
  try {
    CacheOnly(folder).Graph(problem, size);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

TEST_CASE("a graph comes from the cache at its own size, precision and text only") {
  const CacheFolder folder;
  const Problem relu = Relu();
  CHECK_FALSE(IsCached(folder, relu, "small"));
  GraphSource source(ProgramDirectory(), folder.path);
  const std::string graph = source.Graph(relu, "small");
  CHECK(graph.find("\"op\":\"relu\"") != std::string::npos);
  CHECK(CacheOnly(folder).Graph(relu, "small") == graph);
  CHECK_FALSE(IsCached(folder, relu, "full"));
  CHECK_FALSE(IsCached(folder, InPrecision(relu, Precision::kFp16), "small"));
  const Problem other = WithText(Changed(relu.text, "torch.relu(x)", "torch.relu(x) * 2.0"));
  CHECK_FALSE(IsCached(folder, other, "small"));
  CHECK(source.Graph(relu, "full") != graph);
  CHECK(source.Graph(InPrecision(relu, Precision::kFp16), "small").find("float16") != std::string::npos);
  CHECK(source.Graph(other, "small").find("\"op\":\"mul\"") != std::string::npos);
  CHECK(CacheOnly(folder).Graph(relu, "small") == graph);
  CHECK(folder.Files().size() == 4);
}

TEST_CASE("a damaged file of the cache is written again") {
  const CacheFolder folder;
  const Problem relu = Relu();
  GraphSource source(ProgramDirectory(), folder.path);
  const std::string graph = source.Graph(relu, "small");
  const fs::path file = folder.Files().at(0);
  const auto damage = [&](const std::string& bytes) { std::ofstream(file, std::ios::binary) << bytes; };
  std::ifstream in(file, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  for (const std::string& bytes : {std::string(), whole.substr(0, whole.size() / 2), std::string("{}"),
                                   Changed(whole, "\"relu\"", "\"gelu\""), std::string(100, '\0')}) {
    damage(bytes);
    CHECK_FALSE(IsCached(folder, relu, "small"));
    CHECK(source.Graph(relu, "small") == graph);
    CHECK(IsCached(folder, relu, "small"));
  }
}

TEST_CASE("a cache that cannot be written to costs time only") {
  const CacheFolder folder;
  std::ofstream(folder.path / "graphs") << "no folder";
  GraphSource source(ProgramDirectory(), folder.path);
  CHECK(source.Graph(Relu(), "small").find("relu") != std::string::npos);
}

TEST_CASE("two processes share a cache") {
  const CacheFolder folder;
  const Problem relu = Relu();
  std::vector<pid_t> children;
  for (int i = 0; i < 2; ++i) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      bool ok = true;
      try {
        for (const char* size : {"small", "full", "small"})
          ok = ok && GraphSource(ProgramDirectory(), folder.path).Graph(relu, size).find("relu") !=
                         std::string::npos;
      } catch (const std::exception&) {
        ok = false;
      }
      _exit(ok ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  CHECK(IsCached(folder, relu, "small"));
  CHECK(IsCached(folder, relu, "full"));
  CHECK(folder.Files().size() == 2);  // no parts
}

TEST_CASE("the least recently used graphs leave a full cache") {
  const CacheFolder folder;
  fs::create_directories(folder.path / "graphs");
  const auto now = fs::file_time_type::clock::now();
  for (int i = 0; i < 3; ++i) {
    const fs::path file = folder.path / "graphs" / ("old" + std::to_string(i) + ".json");
    std::ofstream(file) << "x";
    fs::resize_file(file, kGraphCacheBytes * 2 / 5);
    fs::last_write_time(file, now - std::chrono::hours(10 - i));
  }
  GraphSource(ProgramDirectory(), folder.path).Graph(Relu(), "small");
  CHECK_FALSE(fs::exists(folder.path / "graphs" / "old0.json"));
  CHECK(fs::exists(folder.path / "graphs" / "old1.json"));
  CHECK(fs::exists(folder.path / "graphs" / "old2.json"));
  CHECK(IsCached(folder, Relu(), "small"));
}

TEST_CASE("a graph that takes too long is refused with the limit, and the next one is made") {
  const CacheFolder folder;
  const Problem slow = WithText(Changed(
      Relu().text, "return torch.relu(x)",
      "n = 0\n    for i in range(1000000):\n        n = n + i * i % 7\n    return torch.relu(x) * float(n)"));
  std::string what;
  try {
    GraphSource(ProgramDirectory(), folder.path, 0.05).Graph(slow, "small");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadRequest);
    CHECK_FALSE(error.next_step().empty());
    what = error.what();
  }
  CHECK(what.find("not ready after 0.05 s") != std::string::npos);
  CHECK(what.find(slow.id) == 0);
  CHECK(GraphSource(ProgramDirectory(), folder.path).Graph(Relu(), "small").find("relu") !=
        std::string::npos);
}

}  // namespace kevin
