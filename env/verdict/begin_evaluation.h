#pragma once
// The first steps of an evaluation, the same in every environment: the key of the question, and what is known before
// anything is compiled.

#include <map>
#include <string>

#include "env/environment.h"

namespace kevin {

// SHA-256 over the parts, which name everything that a verdict depends on.
std::string KeyOf(const std::map<std::string, std::string>& parts);

// The parts with the part "rules", where the rules are not "kevin": keys of earlier programs stay equal.
std::map<std::string, std::string> WithRules(std::map<std::string, std::string> parts,
                                             const Workload& workload);

// The workload in the precision that the problem was given in.
Workload AskedOf(const Problem& problem, Workload workload);

// `parts` has "candidate" and "precision".
Evaluation BeginEvaluation(const std::map<std::string, std::string>& parts, const EvaluateOptions& options,
                           const EnvironmentFacts& facts);

}  // namespace kevin
