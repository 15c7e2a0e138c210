#include "tools/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "env/cpu_environment.h"
#include "env/error.h"
#include "env/precision.h"
#include "tools/honest_kernels.h"
#include "tools/places.h"
#include "tools/table.h"

namespace kevin {
namespace {

using Json = nlohmann::ordered_json;

struct Row {
  std::string name;
  bool must_pass = false;
  bool passed = false;
  std::string reason;
  bool told_apart = true;  // false: right, as far as the outputs' type can tell; counts neither way
};

std::vector<Row> RunDecoys(CpuEnvironment& environment, const Problem& problem,
                           const EvaluateOptions& options) {
  std::vector<Row> rows;
  for (const DecoyResult& decoy : environment.Admit(problem, options)) {
    rows.push_back({decoy.name, false, decoy.passed,
                    decoy.told_apart ? decoy.reason : "nearer to the truth than the outputs' rounding",
                    decoy.told_apart});
  }
  return rows;
}

std::vector<Row> RunHonest(CpuEnvironment& environment, const Problem& problem,
                           const EvaluateOptions& options) {
  std::vector<Row> rows;
  if (PrecisionOf(problem) != Precision::kFp32) return rows;
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
    if (row.passed == row.must_pass || !row.told_apart) continue;
    reason += (reason.empty() ? "" : "; ") + row.name + (row.must_pass ? " was rejected" : " passed");
  }
  return reason;
}

void PrintJson(const Problem& problem, const AdmissionOptions& options, const std::vector<Row>& rows,
               const std::string& reason) {
  const std::string &size = options.size, &precision = options.precision;
  for (const Row& row : rows) {
    const Json event = {{"event", "decoy"},     {"problem", problem.id},
                        {"size", size},         {"precision", precision},
                        {"name", row.name},     {"must_pass", row.told_apart ? Json(row.must_pass) : Json()},
                        {"passed", row.passed}, {"reason", row.reason}};
    fmt::print("{}\n", event.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  const Json event = {{"event", "admission"},
                      {"problem", problem.id},
                      {"size", size},
                      {"precision", precision},
                      {"admitted", reason.empty()},
                      {"reason", reason.empty() ? Json() : Json(reason)}};
  fmt::print("{}\n", event.dump());
}

int Count(const std::vector<Row>& rows, bool must_pass, bool passed) {
  int count = 0;
  for (const Row& row : rows) count += row.told_apart && row.must_pass == must_pass && row.passed == passed;
  return count;
}

}  // namespace

int RunAdmission(const std::vector<Problem>& problems, const AdmissionOptions& options) {
  const auto environment = MakeCpuEnvironmentForTools(EnvironmentOptionsFor(options.threads, "full"));
  EvaluateOptions evaluate;
  evaluate.size = options.size;
  evaluate.inputs = options.inputs;
  int decoys_rejected = 0, decoys = 0, honest_passed = 0, honest = 0, admitted = 0, too_near = 0;
  for (const Problem& problem : problems) {
    std::vector<Row> rows;
    std::string reason;
    try {
      rows = RunDecoys(*environment, problem, evaluate);
      const std::vector<Row> honest_rows = RunHonest(*environment, problem, evaluate);
      rows.insert(rows.end(), honest_rows.begin(), honest_rows.end());
      reason = Judgement(rows);
    } catch (const Error& error) {
      // Eager lacks an operator in 16 bits here and there: no reason to stop at one of a hundred problems.
      if (error.code() != ExitCode::kBadRequest || PrecisionOf(problem) == Precision::kFp32) throw;
      reason = error.what();
    }
    admitted += reason.empty();
    decoys_rejected += Count(rows, false, false);
    decoys += Count(rows, false, false) + Count(rows, false, true);
    too_near += static_cast<int>(
        std::count_if(rows.begin(), rows.end(), [](const Row& row) { return !row.told_apart; }));
    honest_passed += Count(rows, true, true);
    honest += static_cast<int>(honest_rows.size());
    if (options.json) {
      PrintJson(problem, options, rows, reason);
    } else {
      fmt::print("{:<12} {:<28} {}\n", problem.id, problem.name,
                 reason.empty() ? "admitted" : "NOT ADMITTED: " + reason);
      std::vector<std::vector<std::string>> table;
      for (const Row& row : rows) {
        const char* verdict = row.passed ? "passed" : "rejected";
        const bool as_it_must = row.passed == row.must_pass || !row.told_apart;
        table.push_back({"  " + row.name,
                         row.must_pass    ? "must pass"
                         : row.told_apart ? "must fail"
                                          : "may pass",
                         as_it_must ? verdict : std::string(verdict) + "  <-- WRONG",
                         row.reason.substr(0, 60)});
      }
      fmt::print("{}", AlignedTable(table));
    }
    std::fflush(stdout);
  }
  if (!options.json) {
    fmt::print(
        "\nadmitted {}/{}; decoys rejected {}/{}; honest alternatives passed {}/{} (size {}, inputs {}{})\n",
        admitted, problems.size(), decoys_rejected, decoys, honest_passed, honest, options.size,
        options.inputs, options.precision == "fp32" ? "" : ", " + options.precision);
    if (too_near > 0)
      fmt::print("{} more decoys are nearer to the truth than the outputs' rounding\n", too_near);
  }
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace kevin
