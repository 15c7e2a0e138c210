#include "tools/admission.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "env/error.h"
#include "tools/honest_kernels.h"
#include "tools/places.h"
#include "tools/table.h"

namespace kevin {
namespace {

using Json = nlohmann::ordered_json;

using Row = AdmissionRow;

std::vector<Row> RunDecoys(CpuEnvironment& environment, const Problem& problem,
                           const EvaluateOptions& options) {
  std::vector<Row> rows;
  for (const DecoyResult& decoy : environment.Admit(problem, options)) {
    rows.push_back({decoy.name, false, decoy.passed, decoy.reason});
  }
  return rows;
}

std::vector<Row> RunHonest(CpuEnvironment& environment, const Problem& problem,
                           const EvaluateOptions& options) {
  std::vector<Row> rows;
  for (const HonestKernel& kernel : HonestKernelsFor(problem)) {
    const Outcome outcome = environment.Verify(problem, {"cpp", kernel.source}, options);
    const auto* right = std::get_if<Measured>(&outcome);
    rows.push_back(
        {kernel.name, true, right != nullptr,
         right ? fmt::format("worst error {:.2g} of {:.2g} allowed", right->max_error, right->error_bound)
               : OutcomeReason(outcome)});
  }
  return rows;
}

std::string Judgement(const std::vector<Row>& rows) {
  std::string reason;
  for (const Row& row : rows) {
    if (row.passed == row.must_pass) continue;
    reason += (reason.empty() ? "" : "; ") + row.name + (row.must_pass ? " was rejected" : " passed");
  }
  return reason;
}

void PrintJson(const Problem& problem, const std::string& size, const std::vector<Row>& rows,
               const std::string& reason) {
  for (const Row& row : rows) {
    const Json event = {{"event", "decoy"},    {"problem", problem.id},      {"size", size},
                        {"name", row.name},    {"must_pass", row.must_pass}, {"passed", row.passed},
                        {"reason", row.reason}};
    fmt::print("{}\n", event.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  const Json event = {{"event", "admission"},
                      {"problem", problem.id},
                      {"size", size},
                      {"admitted", reason.empty()},
                      {"reason", reason.empty() ? Json() : Json(reason)}};
  fmt::print("{}\n", event.dump());
}

}  // namespace

int AdmissionResult::Count(bool must_pass, bool passed) const {
  int count = 0;
  for (const Row& row : rows) count += row.must_pass == must_pass && row.passed == passed;
  return count;
}

AdmissionResult Admit(CpuEnvironment& environment, const Problem& problem, const EvaluateOptions& options) {
  AdmissionResult result;
  result.rows = RunDecoys(environment, problem, options);
  for (Row& row : RunHonest(environment, problem, options)) result.rows.push_back(std::move(row));
  result.reason = Judgement(result.rows);
  return result;
}

int RunAdmission(const std::vector<Problem>& problems, const AdmissionOptions& options) {
  const auto environment = MakeCpuEnvironmentForTools(EnvironmentOptionsFor(options.threads, "full"));
  EvaluateOptions evaluate;
  evaluate.size = options.size;
  evaluate.inputs = options.inputs;
  int decoys_rejected = 0, decoys = 0, honest_passed = 0, honest = 0, admitted = 0;
  for (const Problem& problem : problems) {
    const AdmissionResult result = Admit(*environment, problem, evaluate);
    const std::vector<Row>& rows = result.rows;
    const std::string& reason = result.reason;
    admitted += reason.empty();
    decoys_rejected += result.Count(false, false);
    decoys += result.Count(false, false) + result.Count(false, true);
    honest_passed += result.Count(true, true);
    honest += result.Count(true, true) + result.Count(true, false);
    if (options.json) {
      PrintJson(problem, options.size, rows, reason);
    } else {
      fmt::print("{:<12} {:<28} {}\n", problem.id, problem.name,
                 reason.empty() ? "admitted" : "NOT ADMITTED: " + reason);
      std::vector<std::vector<std::string>> table;
      for (const Row& row : rows) {
        const char* verdict = row.passed ? "passed" : "rejected";
        table.push_back({"  " + row.name, row.must_pass ? "must pass" : "must fail",
                         row.passed == row.must_pass ? verdict : std::string(verdict) + "  <-- WRONG",
                         row.reason.substr(0, 60)});
      }
      fmt::print("{}", AlignedTable(table));
    }
    std::fflush(stdout);
  }
  if (!options.json) {
    fmt::print(
        "\nadmitted {}/{}; decoys rejected {}/{}; honest alternatives passed {}/{} (size {}, inputs {})\n",
        admitted, problems.size(), decoys_rejected, decoys, honest_passed, honest, options.size,
        options.inputs);
  }
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace kevin
