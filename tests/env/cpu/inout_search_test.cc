// What the search policy writes for problems with input-outputs, judged by the evaluator.

#include <cstdlib>

#include "env/cpu/cpu_environment.h"
#include "tests/catch.h"
#include "tests/env/cpu/cpu_fixture.h"
#include "tests/env/cpu/inout_cases.h"
#include "tests/support/search_text.h"

namespace kevin {

TEST_CASE("what the search writes in place is correct, and uses a workspace only where it must") {
  const TemporaryFolder cache;
  const auto environment = MakeCpuEnvironmentForTools(SmallLimits(cache.path()));
  const char* part = std::getenv("KEVIN_CASE");
  for (const InOutCase& one : InOutCases()) {
    if (part != nullptr && one.name.find(part) == std::string::npos) continue;
    const Problem problem = InOutProblem(one);
    std::string why;
    const std::string text = testing::SearchText(problem, "small", "cpp", &why);
    INFO(one.name << ": " << why << "\n" << text);
    REQUIRE(why.empty());
    const Outcome outcome = environment->Verify(problem, {"cpp", text}, {});
    INFO(OutcomeReason(outcome));
    CHECK(std::holds_alternative<Measured>(outcome));
    const bool has_workspace = text.find("char* const workspace") != std::string::npos;
    if (!one.needs_workspace) CHECK_FALSE(has_workspace);
  }
}

}  // namespace kevin
