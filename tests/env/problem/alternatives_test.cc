#include <filesystem>
#include <fstream>
#include <set>

#include "env/error.h"
#include "env/problem/problem.h"
#include "tests/catch.h"
#include "tests/folders.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

const fs::path kProblems = SourceFolder() / "env/problems";

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Level 1 has them; the others are admitted by decoys and the reference's own answers only.
TEST_CASE("alternatives have their problem's signature") {
  const ProblemSet set(kProblems);
  int problems = 0;
  size_t kernels = 0;
  for (const std::string& id : set.Ids()) {
    CAPTURE(id);
    const Problem problem = set.Find(id);
    const std::vector<Alternative> alternatives = AlternativesFor(problem);
    if (alternatives.empty()) continue;
    ++problems;
    kernels += alternatives.size();
    CHECK(alternatives.size() >= 2);
    std::set<std::string> names, sources;
    for (const Alternative& alternative : alternatives) {
      CAPTURE(alternative.name);
      const std::string& source = alternative.source;
      names.insert(alternative.name);
      sources.insert(source.substr(source.find('\n')));
      std::string one_line;  // long signatures take several
      for (const char c : source) {
        if (c != '\n' && c != ' ') one_line += c;
      }
      std::string signature = LaunchSignature(problem) + "{";
      std::erase(signature, ' ');
      CHECK(Contains(one_line, signature));
    }
    CHECK(names.size() == alternatives.size());
    CHECK(sources.size() == alternatives.size());
  }
  CHECK(problems == 100);
  CHECK(kernels == 378);
}

TEST_CASE("every file of the alternatives belongs to a problem") {
  const ProblemSet set(kProblems);
  size_t found = 0, files = 0;
  for (const std::string& id : set.Ids()) found += AlternativesFor(set.Find(id)).size();
  for (const auto& entry : fs::recursive_directory_iterator(kProblems / "alternatives"))
    files += entry.is_regular_file();
  CHECK(found == files);
}

TEST_CASE("a user's problem file has no alternatives unless its folder has some") {
  Problem problem;
  problem.id = "mine/relu";
  CHECK(AlternativesFor(problem).empty());
  const fs::path folder = BinaryFolder() / "alternatives_test";
  fs::remove_all(folder);
  problem.path = folder / "relu.toml";
  CHECK(AlternativesFor(problem).empty());

  problem.path = folder / "mine/relu.toml";
  const fs::path place = folder / "alternatives/mine/relu";
  fs::create_directories(place);
  std::ofstream(place / "serial_sum.cpp") << "// serial sum\nint x;\n";
  std::ofstream(place / "notes.txt") << "not a kernel";
  REQUIRE(AlternativesFor(problem).size() == 1);
  CHECK(AlternativesFor(problem)[0].name == "serial sum");
  CHECK(AlternativesFor(problem)[0].source == "// serial sum\nint x;\n");
  problem.id = "other/relu";
  CHECK(AlternativesFor(problem).empty());

  problem.id = "mine/relu";
  std::ofstream(place / "broken.cpp") << "int x;\n";
  CHECK_THROWS_AS(AlternativesFor(problem), Error);
}

}  // namespace
}  // namespace kevin
