#pragma once
// A kernel in KernelBench's form: one Python file with a class ModelNew that builds its operator when it is loaded.

#include <string>
#include <vector>

#include "env/problem/problem.h"

namespace kevin {

// Parameters of the problem become torch.nn parameters of their shapes, without values: KernelBench's models make their
// own. `heading`: one text a line, as comments on top. Kinds `cuda` and `cpp`; throws as WriteLaunchCode does.
std::string WriteModelNew(const SizedProblem& problem, const std::string& kind, const std::string& source,
                          const std::vector<std::string>& heading);

}  // namespace kevin
