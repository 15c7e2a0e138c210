#include "env/verdict/begin_evaluation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "env/error.h"
#include "env/problem/precision.h"
#include "env/problem/text.h"
#include "env/verdict/verify.h"

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

void RequireStartKind(const std::string& kind, const EvaluateOptions& options) {
  if (options.start_kind.empty() || options.start_kind == kind) return;
  throw Error(ExitCode::kBadRequest,
              "a kernel of kind " + kind + " is not timed in pairs with one of kind " + options.start_kind,
              "start from a kernel of the same kind");
}

void RequireModelFits(const Problem& problem, const std::string& kind, const std::string& size) {
  if (kind != "modelnew" || !problem.model || ModelFitsSize(problem, size)) return;
  throw Error(
      ExitCode::kBadRequest,
      fmt::format("{}: the class Model has other parameters than the problem at size {}, so no ModelNew is "
                  "judged there",
                  problem.id, size),
      fmt::format("use --size {}, or a kind other than modelnew", fmt::join(problem.model->sizes, " or ")));
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

std::map<std::string, std::string> KeyPartsOf(const Problem& problem, const Candidate& candidate,
                                              const Workload& workload,
                                              std::map<std::string, std::string> own) {
  RequireModelFits(problem, candidate.kind, workload.size);
  own.merge(
      std::map<std::string, std::string>{{"candidate", Sha256Hex(candidate.kind + "\n" + candidate.source)},
                                         {"kind", candidate.kind},
                                         {"problem_hash", HashFor(problem, candidate.kind)},
                                         {"size", workload.size},
                                         {"inputs", workload.inputs},
                                         {"precision", PrecisionName(PrecisionOf(problem))},
                                         {"tf32", workload.tf32 ? "reference" : "off"},
                                         {"tolerance_version", std::to_string(kToleranceVersion)},
                                         {"rules_version", std::to_string(kRulesVersion)}});
  return WithRules(std::move(own), workload);
}

nlohmann::json RequestOf(const std::string& command, const Problem& problem, const Workload& workload) {
  const nlohmann::json asked = WorkloadToJson(AskedOf(problem, workload));
  return {{"command", command},
          {"session", Sha256Hex(problem.text + "\n" + asked.dump())},
          {"problem_text", problem.text},
          {"problem_path", problem.path.string()},
          {"workload", asked}};
}

}  // namespace kevin
