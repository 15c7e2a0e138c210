// Every listed problem and chain is written in both kinds, or is refused with a reason. No kernel is compiled here.
// KEVIN_TEXTS=FOLDER keeps the texts, KEVIN_CASE=PART chooses problems by a part of their ids.

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "env/problem/problem.h"
#include "env/workload.h"
#include "policies/search/task_program.h"
#include "tests/catch.h"
#include "tests/folders.h"
#include "tests/support/search_text.h"

namespace kevin {
namespace {

void Keep(const std::string& folder, std::string id, const std::string& kind, const std::string& text) {
  std::replace(id.begin(), id.end(), '/', '-');
  std::ofstream(folder + "/" + id + "." + kind) << text;
}

int CountOf(const std::string& text, const std::string& word) {
  int count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

}  // namespace

TEST_CASE("every listed problem is written") {
  const ProblemSet problems(SourceFolder() / "env/problems");
  const std::vector<std::string> ids = problems.Ids();
  REQUIRE(ids.size() >= 250);
  const char *part = std::getenv("KEVIN_CASE"), *folder = std::getenv("KEVIN_TEXTS");
  for (const std::string& id : ids) {
    if (part != nullptr && id.find(part) == std::string::npos) continue;
    const Problem problem = problems.Find(id);
    for (const auto& [kind, size] : {std::pair("cpp", "small"), std::pair("cuda", "full")}) {
      std::string why;
      const std::string text = testing::SearchText(problem, size, kind, &why);
      INFO(id << " " << kind << " " << size << ": " << why);
      CHECK(why.empty());
      if (folder != nullptr) Keep(folder, id, kind, text);
      CHECK((text.find("launch(") != std::string::npos) == why.empty());
    }
  }
}

// Points of a stage run in any order, and kernels read ahead.
TEST_CASE("no stage of a listed problem reads what it writes") {
  const ProblemSet problems(SourceFolder() / "env/problems");
  size_t stages = 0;
  for (const std::string& id : problems.Ids()) {
    for (const auto& [kind, size] : {std::pair("cpp", "small"), std::pair("cuda", "full")}) {
      for (const search::TaskProgram& one :
           search::ProgramsOf(testing::SearchTask(problems.Find(id), size, kind))) {
        for (const search::Stage* stage : search::LeafStages(one.program)) {
          INFO(id << " " << kind << " " << size << ": " << stage->name);
          CHECK(search::HasIndependentPoints(one.program, *stage));
          ++stages;
        }
      }
    }
  }
  REQUIRE(stages > 4000);
}

// More take too long to compile, and too long for a reader.
TEST_CASE("no text of a network has more than 40 kernels") {
  constexpr int kMost = 40;
  const ProblemSet problems(SourceFolder() / "env/problems");
  const char* part = std::getenv("KEVIN_CASE");
  int texts = 0, most = 0;
  for (const std::string& id : problems.Ids()) {
    if (!id.starts_with("level3/") || (part != nullptr && id.find(part) == std::string::npos)) continue;
    for (const char* precision : {"fp32", "fp16"}) {
      Workload workload;
      workload.precision = precision;
      const Problem problem = workload.Apply(problems.Find(id));
      for (const char* size : {"small", "full"}) {
        for (const char* kind : {"cpp", "cuda"}) {
          const std::string text = testing::SearchText(problem, size, kind);
          const int count = CountOf(text, kind == std::string("cuda") ? "__global__" : "static void stage_");
          INFO(id << " " << kind << " " << size << " " << precision << ": " << count);
          CHECK((count > 0 && count <= kMost));
          most = std::max(most, count);
          ++texts;
        }
      }
    }
  }
  WARN(texts << " texts, " << most << " kernels at most");
}

}  // namespace kevin
