// Every listed problem and chain is written in both kinds, or is refused with a reason. No kernel is compiled here.
// KEVIN_TEXTS=FOLDER keeps the texts, KEVIN_CASE=PART chooses problems by a part of their ids.

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "env/problem/problem.h"
#include "tests/catch.h"
#include "tests/support/search_text.h"

namespace kevin {
namespace {

void Keep(const std::string& folder, std::string id, const std::string& kind, const std::string& text) {
  std::replace(id.begin(), id.end(), '/', '-');
  std::ofstream(folder + "/" + id + "." + kind) << text;
}

}  // namespace

TEST_CASE("every listed problem is written") {
  const ProblemSet problems(KEVIN_SOURCE_DIR "/env/problems");
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

}  // namespace kevin
