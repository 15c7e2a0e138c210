#include "env/verdict/begin_evaluation.h"

#include <utility>

#include "env/problem/precision.h"
#include "env/problem/text.h"

namespace kevin {

std::string KeyOf(const std::map<std::string, std::string>& parts) {
  std::string text;
  for (const auto& [name, value] : parts) text += name + "=" + value + "\n";
  return Sha256Hex(text);
}

std::map<std::string, std::string> WithRules(std::map<std::string, std::string> parts,
                                             const Workload& workload) {
  RequireKnownRules(workload);
  if (workload.rules != "kevin") parts["rules"] = workload.rules;
  return parts;
}

Workload AskedOf(const Problem& problem, Workload workload) {
  workload.precision = PrecisionName(PrecisionOf(problem));
  return workload;
}

Evaluation BeginEvaluation(const std::map<std::string, std::string>& parts, const EvaluateOptions& options,
                           const EnvironmentFacts& facts) {
  Evaluation evaluation;
  evaluation.key_parts = parts;
  evaluation.candidate_hash = parts.at("candidate");
  evaluation.key = KeyOf(parts);
  evaluation.workload = options.workload;
  evaluation.workload.precision = parts.at("precision");
  evaluation.device = facts.device;
  evaluation.isolation = facts.isolation;
  return evaluation;
}

}  // namespace kevin
