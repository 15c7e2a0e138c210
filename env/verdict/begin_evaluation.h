#pragma once
// The first steps of an evaluation, the same in every environment: the key of the question, and what is known before
// anything is compiled.

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "env/environment.h"

namespace kevin {

// SHA-256 over the parts, which name everything that a verdict depends on.
std::string KeyOf(const std::map<std::string, std::string>& parts);

// The parts with the part "rules", where the rules are not "kevin": keys of earlier programs stay equal.
std::map<std::string, std::string> WithRules(std::map<std::string, std::string> parts,
                                             const Workload& workload);

// All parts of an evaluation's key: what every environment has in common (candidate, kind, problem, workload, versions
// of the tolerances and of the rules: a verdict under older rules has another key), `own` (baseline, toolchain, device,
// isolation, ...; wins where both have a part), and the rules. Throws as RequireModelFits does.
std::map<std::string, std::string> KeyPartsOf(const Problem& problem, const Candidate& candidate,
                                              const Workload& workload,
                                              std::map<std::string, std::string> own);

// Throws Error(kBadRequest) where the candidate is a `modelnew` and KernelBench's class of the problem has other
// parameters at this size (ModelFitsSize). A problem without facts about that class has none to contradict.
void RequireModelFits(const Problem& problem, const std::string& kind, const std::string& size);

// Throws Error(kBadRequest) where the kernel to pair against is of another kind.
void RequireStartKind(const std::string& kind, const EvaluateOptions& options);

// A request about a problem to an evaluator (env/process/wire.h): the command, the problem's text, the workload, and
// the key of the session that these two need.
nlohmann::json RequestOf(const std::string& command, const Problem& problem, const Workload& workload);

// The workload in the precision that the problem was given in.
Workload AskedOf(const Problem& problem, Workload workload);

// `parts` has "candidate" and "precision".
Evaluation BeginEvaluation(const std::map<std::string, std::string>& parts, const EvaluateOptions& options,
                           const EnvironmentFacts& facts);

}  // namespace kevin
