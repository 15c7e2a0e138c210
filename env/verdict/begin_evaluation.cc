#include "env/verdict/begin_evaluation.h"

#include "env/problem/text.h"

namespace kevin {

std::string KeyOf(const std::map<std::string, std::string>& parts) {
  std::string text;
  for (const auto& [name, value] : parts) text += name + "=" + value + "\n";
  return Sha256Hex(text);
}

Evaluation BeginEvaluation(const std::map<std::string, std::string>& parts, const EvaluateOptions& options,
                           const EnvironmentFacts& facts) {
  Evaluation evaluation;
  evaluation.key_parts = parts;
  evaluation.candidate_hash = parts.at("candidate");
  evaluation.key = KeyOf(parts);
  evaluation.size = options.size;
  evaluation.inputs = options.inputs;
  evaluation.precision = parts.at("precision");
  evaluation.device = facts.device;
  evaluation.isolation = facts.isolation;
  evaluation.tf32 = options.tf32;
  return evaluation;
}

}  // namespace kevin
