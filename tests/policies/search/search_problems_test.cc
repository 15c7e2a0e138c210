// Every listed problem and chain is written in both kinds, or is refused with a reason. No kernel is compiled here.

#include "env/problem/problem.h"
#include "tests/catch.h"
#include "tests/support/search_text.h"

namespace kevin {

TEST_CASE("every listed problem is written") {
  const ProblemSet problems(KEVIN_SOURCE_DIR "/env/problems");
  const std::vector<std::string> ids = problems.Ids();
  REQUIRE(ids.size() >= 250);
  for (const std::string& id : ids) {
    const Problem problem = problems.Find(id);
    for (const auto& [kind, size] : {std::pair("cpp", "small"), std::pair("cuda", "full")}) {
      std::string why;
      const std::string text = testing::SearchText(problem, size, kind, &why);
      INFO(id << " " << kind << " " << size << ": " << why);
      CHECK(why.empty());
      CHECK((text.find("launch(") != std::string::npos) == why.empty());
    }
  }
}

}  // namespace kevin
