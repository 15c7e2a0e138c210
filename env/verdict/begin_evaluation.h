#pragma once
// How every environment begins an evaluation: who asks what, and under which key the answer is stored.

#include <map>
#include <string>

#include "env/environment.h"

namespace kevin {

// SHA-256 over the parts, which say by name what a verdict depends on.
std::string KeyOf(const std::map<std::string, std::string>& parts);

// Filled as far as it is known before anything is compiled. `parts` has "candidate" and "precision".
Evaluation BeginEvaluation(const std::map<std::string, std::string>& parts, const EvaluateOptions& options,
                           const EnvironmentFacts& facts);

}  // namespace kevin
