#include "tools/policy_coverage.h"

#include "agent/episode.h"
#include "agent/machine.h"
#include "env/error.h"
#include "env/graph_source.h"
#include "env/problem/problem.h"
#include "env/process/spawn.h"

namespace kevin {
namespace {

constexpr const char* kCoveredSuites[] = {"level1", "level2", "level3", "chains"};

}  // namespace

std::vector<SuiteCoverage> CoverageOf(const Policy& policy, const std::string& kind, const std::string& size,
                                      const std::function<void(const std::string& id)>& on_problem) {
  const ProblemSet problems(ProblemSet::DefaultDirectory());
  GraphSource graphs(ProgramDirectory(), CacheDirectory());
  EpisodeOptions options;
  options.workload.size = size;
  std::vector<SuiteCoverage> coverage;
  for (const char* name : kCoveredSuites) {
    SuiteCoverage suite;
    suite.suite = name;
    std::vector<LeftOut> left_out;
    for (const std::string& id : ProblemsOfSuite(problems, ProblemSet::DefaultDirectory(), name, &left_out)) {
      on_problem(id);
      ++suite.asked;
      try {
        RequirePolicyFor(
            problems.Find(id), policy, options, kind,
            [&](const Problem& problem, const std::string& shape) { return graphs.Graph(problem, shape); });
        ++suite.written;
      } catch (const Error& error) {
        if (error.code() != ExitCode::kBadRequest) throw;
        suite.refused.push_back({id, error.what(), error.next_step()});
      }
    }
    coverage.push_back(std::move(suite));
  }
  return coverage;
}

}  // namespace kevin
