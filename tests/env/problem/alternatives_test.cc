#include <set>

#include "tests/catch.h"
#include "tools/honest_kernels.h"

namespace kevin {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Written for all of level 1; the others are admitted by decoys and the reference's own answers only.
TEST_CASE("honest kernels have their problem's signature") {
  const ProblemSet set(std::string(KEVIN_SOURCE_DIR) + "/env/problems");
  int problems = 0;
  for (const std::string& id : set.Ids()) {
    CAPTURE(id);
    const Problem problem = set.Find(id);
    const std::vector<HonestKernel> kernels = HonestKernelsFor(problem);
    if (kernels.empty()) continue;
    ++problems;
    CHECK(kernels.size() >= 2);
    std::set<std::string> names, sources;
    for (const HonestKernel& kernel : kernels) {
      CAPTURE(kernel.name);
      names.insert(kernel.name);
      sources.insert(kernel.source);
      CHECK(Contains(kernel.source, LaunchSignature(problem) + " {\n"));
      CHECK_FALSE(Contains(kernel.source, "$"));
    }
    CHECK(names.size() == kernels.size());
    CHECK(sources.size() == kernels.size());
  }
  CHECK(problems == 100);
}

TEST_CASE("a problem of one's own has none") {
  Problem problem;
  problem.id = "mine/relu";
  CHECK(HonestKernelsFor(problem).empty());
}

}  // namespace
}  // namespace kevin
