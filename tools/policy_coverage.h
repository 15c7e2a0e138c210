#pragma once
// Which of the listed problems a policy can work on, found without starting an environment. One thread.

#include <functional>
#include <string>
#include <vector>

#include "policies/policy.h"

namespace kevin {

struct RefusedProblem {
  std::string id, reason, next_step;
};

struct SuiteCoverage {
  std::string suite;  // "level1", "chains"
  int written = 0, asked = 0;
  std::vector<RefusedProblem> refused;
};

// For the three levels and the chains, without the problems that their flags leave out, in fp32 at size `size`.
// `on_problem` is called before each. Throws Error(kMachine) or Error(kBroken) where the graphs of references cannot
// be made.
std::vector<SuiteCoverage> CoverageOf(const Policy& policy, const std::string& kind, const std::string& size,
                                      const std::function<void(const std::string& id)>& on_problem);

}  // namespace kevin
