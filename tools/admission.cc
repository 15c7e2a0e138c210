#include "tools/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <tuple>

#include "agent/events.h"
#include "agent/json.h"
#include "agent/machine.h"
#include "agent/terminal.h"
#include "env/error.h"
#include "env/gpu/gpu_environment.h"
#include "env/problem/precision.h"
#include "env/problem/python_model.h"
#include "env/process/machine.h"
#include "tools/device_options.h"
#include "tools/report/format.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostFailuresInARow = 3;

using Row = AdmissionRow;

// --- Decoys and alternatives of one problem ---

std::vector<Row> RowsOf(const std::vector<DecoyResult>& decoys) {
  std::vector<Row> rows;
  for (const DecoyResult& decoy : decoys) {
    rows.push_back({decoy.name, decoy.must_pass, decoy.passed,
                    decoy.distinguishable ? decoy.reason : "nearer to the truth than the outputs' rounding",
                    decoy.distinguishable && !decoy.is_marked});
  }
  return rows;
}

Row RowOf(const std::string& name, bool must_pass, const Outcome& outcome) {
  const auto* measured = std::get_if<Measured>(&outcome);
  return {name, must_pass, measured != nullptr,
          measured ? WorstErrorText(measured->max_error, measured->error_bound) : OutcomeReason(outcome)};
}

void TryAlternatives(CpuEnvironment& environment, const Problem& problem, const EvaluateOptions& options,
                     std::vector<Row>* rows) {
  if (PrecisionOf(problem) != Precision::kFp32) return;
  for (const Alternative& kernel : AlternativesFor(problem))
    rows->push_back(RowOf(kernel.name, true, environment.Verify(problem, {"cpp", kernel.source}, options)));
}

std::string Judgement(const std::vector<Row>& rows) {
  std::string reason;
  for (const Row& row : rows) {
    if (row.passed == row.must_pass || !row.is_distinguishable) continue;
    reason += (reason.empty() ? "" : "; ") + row.name + (row.must_pass ? " was rejected" : " passed");
  }
  return reason;
}

// Incorrect answers must fail at each shape of a size set.
AdmissionResult AtEachShape(const Problem& problem, EvaluateOptions options,
                            const std::function<std::vector<Row>(const EvaluateOptions&)>& try_one) {
  AdmissionResult result;
  const std::string asked = options.workload.size;
  for (const WeightedShape& shape : ShapesOf(problem, asked)) {
    options.workload.size = shape.size;
    for (Row& row : try_one(options)) {
      if (shape.size != asked) row.name += " at " + shape.size;
      result.rows.push_back(std::move(row));
    }
  }
  result.reason = Judgement(result.rows);
  return result;
}

}  // namespace

int AdmissionResult::Count(bool must_pass, bool passed) const {
  int count = 0;
  for (const Row& row : rows)
    count += row.is_distinguishable && row.must_pass == must_pass && row.passed == passed;
  return count;
}

AdmissionResult Admit(CpuEnvironment& environment, const Problem& problem, const EvaluateOptions& options) {
  return AtEachShape(problem, options, [&](const EvaluateOptions& at_shape) {
    std::vector<Row> rows = RowsOf(environment.Admit(problem, at_shape));
    TryAlternatives(environment, problem, at_shape, &rows);
    return rows;
  });
}

void TryInPython(CpuEnvironment& environment, const Problem& problem, const EvaluateOptions& options,
                 AdmissionResult* result) {
  if (PrecisionOf(problem) != Precision::kFp32) {
    result->python_not_tried = "they are for fp32";
    return;
  }
  EvaluateOptions open = options;
  open.workload.rules = "open";
  try {
    const AdmissionResult tried = AtEachShape(problem, open, [&](const EvaluateOptions& at_shape) {
      std::vector<Row> rows;
      for (const PythonAnswer& answer : PythonAnswers(AtSize(problem, at_shape.workload.size)))
        rows.push_back(RowOf(answer.name, answer.must_pass,
                             environment.Verify(problem, {"modelnew", answer.source}, at_shape)));
      return rows;
    });
    result->rows.insert(result->rows.end(), tried.rows.begin(), tried.rows.end());
    result->reason = Judgement(result->rows);
  } catch (const Error& error) {
    if (error.code() == ExitCode::kBroken || error.code() == ExitCode::kInterrupted) throw;
    result->python_not_tried = error.what();
  }
}

namespace {

// --- Several problems, with a log ---

// The device on which decoys and alternatives run.
class Device {
 public:
  explicit Device(const AdmissionOptions& options) {
    EnvironmentOptions environment = EnvironmentOptionsFor(options.threads, "full");
    environment.device = options.device;
    if (options.device == "cpu") {
      cpu_ = MakeCpuEnvironmentForTools(environment);
      return;
    }
    environment_ = MakeEnvironment(environment);
    gpu_ = &dynamic_cast<GpuEnvironment&>(*environment_);
  }

  const EnvironmentFacts& Facts() const { return cpu_ ? cpu_->Facts() : gpu_->Facts(); }

  AdmissionResult Try(const Problem& problem, const EvaluateOptions& options) {
    if (cpu_) {
      AdmissionResult result = Admit(*cpu_, problem, options);
      TryInPython(*cpu_, problem, options, &result);
      return result;
    }
    AdmissionResult result = AtEachShape(problem, options, [&](const EvaluateOptions& at_shape) {
      return RowsOf(gpu_->Admit(problem, at_shape));
    });
    result.python_not_tried = "they are tried on a CPU";
    return result;
  }

 private:
  std::unique_ptr<CpuEnvironment> cpu_;
  std::unique_ptr<Environment> environment_;
  GpuEnvironment* gpu_ = nullptr;
};

std::vector<Json> EventsOf(const AdmissionRecord& record, const std::vector<Row>& rows) {
  std::vector<Json> events;
  for (const Row& row : rows) {
    events.push_back({{"event", "decoy"},
                      {"problem", record.problem},
                      {"size", record.workload.size},
                      {"precision", record.workload.precision},
                      {"name", row.name},
                      {"must_pass", row.is_distinguishable ? Json(row.must_pass) : Json()},
                      {"passed", row.passed},
                      {"reason", row.reason}});
  }
  events.push_back(ToJson(record));
  return events;
}

std::string VerdictOf(const Problem& problem, const AdmissionRecord& record) {
  if (!record.error.empty()) return "NOT KNOWN: " + record.error;
  const std::vector<const char*> flags =
      FlagsAgainst(PrecisionNamed(record.workload.precision), record.workload.size);
  const auto flag = std::find_if(flags.begin(), flags.end(),
                                 [&](const char* name) { return problem.flags.contains(name); });
  const bool is_flagged = flag != flags.end();
  if (record.reason.empty())
    return is_flagged ? fmt::format("admitted, though its file says `{}`", *flag) : "admitted";
  if (is_flagged) return "not admitted, as its file says: " + record.reason;
  return fmt::format("NOT ADMITTED: {}; harden its inputs, or flag it `{}`, which leaves it out of scores",
                     record.reason, flags.back());
}

void PrintTable(const Problem& problem, const AdmissionRecord& record, const std::vector<Row>& rows) {
  PrintFormat(stdout, "{:<12} {:<28} {} ({:.1f} s)\n", problem.id, problem.name, VerdictOf(problem, record),
              record.seconds);
  std::vector<std::vector<std::string>> table;
  for (const Row& row : rows) {
    const char* verdict = row.passed ? "passed" : "rejected";
    const char* demand = row.must_pass ? "must pass" : row.is_distinguishable ? "must fail" : "may pass";
    const bool as_it_must = row.passed == row.must_pass || !row.is_distinguishable;
    table.push_back({"  " + row.name, demand, as_it_must ? verdict : std::string(verdict) + "  <-- WRONG",
                     row.reason.substr(0, 60)});
  }
  Print(stdout, AlignedTable(table));
  if (!record.python_not_tried.empty())
    PrintFormat(stdout, "  kernels in Python were not tried: {}\n", record.python_not_tried);
}

struct Totals {
  int admitted = 0, judged = 0, failed = 0, known = 0, decoys = 0, rejected = 0, right = 0, right_passed = 0;
  int too_near = 0;

  void Add(const AdmissionRecord& record) {
    (record.error.empty() ? judged : failed) += 1;
    admitted += record.error.empty() && record.reason.empty();
    decoys += record.decoys, rejected += record.rejected;
    right += record.right, right_passed += record.right_passed, too_near += record.too_near;
  }
};

class Admission {
 public:
  Admission(const std::vector<Problem>& problems, const AdmissionOptions& options)
      : problems_(problems), options_(options), log_(options.results), device_(options) {
    evaluate_.workload = options.workload;
    if (options.workload.size.empty()) evaluate_.workload.size = device_.Facts().default_size;
  }

  int Run() {
    size_t left = 0;
    for (const Problem& problem : problems_) {
      AdmissionRecord record{problem.id, problem.content_hash, evaluate_.workload, device_.Facts().device};
      if (const AdmissionRecord* known = log_.Find(record)) {
        totals_.Add(*known);
        ++totals_.known;
      } else if (options_.seconds > 0 && SecondsSince(start_) > options_.seconds) {
        ++left;
      } else {
        Judge(problem, &record);
      }
    }
    if (!options_.json) PrintTotals(left);
    return static_cast<int>(totals_.failed > 0 ? ExitCode::kBroken : ExitCode::kDone);
  }

 private:
  void Judge(const Problem& problem, AdmissionRecord* record) {
    const auto start = Clock::now();
    AdmissionResult result;
    try {
      result = device_.Try(problem, evaluate_);
      failures_ = 0;
    } catch (const Error& error) {
      // Eager lacks some operators in 16 bits; such a problem is not admitted.
      const bool is_lacking =
          error.code() == ExitCode::kBadRequest && PrecisionOf(problem) != Precision::kFp32;
      if (!is_lacking && (problems_.size() == 1 || ++failures_ == kMostFailuresInARow)) throw;
      (is_lacking ? result.reason : record->error) = error.what();
    }
    record->seconds = SecondsSince(start);
    record->reason = result.reason;
    record->python_not_tried = result.python_not_tried;
    record->rejected = result.Count(false, false);
    record->decoys = record->rejected + result.Count(false, true);
    record->right_passed = result.Count(true, true);
    record->right = record->right_passed + result.Count(true, false);
    record->too_near = static_cast<int>(std::count_if(
        result.rows.begin(), result.rows.end(), [](const Row& row) { return !row.is_distinguishable; }));
    totals_.Add(*record);
    const std::vector<Json> events = EventsOf(*record, result.rows);
    log_.Add(events, *record);
    if (options_.json) {
      for (const Json& event : events) Print(stdout, ToLine(event));
    } else {
      PrintTable(problem, *record, result.rows);
    }
  }

  void PrintTotals(size_t left) const {
    PrintFormat(
        stdout,
        "\nadmitted {}/{}; decoys rejected {}/{}; correct answers passed {}/{} (size {}, inputs {}{}, {})\n",
        totals_.admitted, totals_.judged, totals_.rejected, totals_.decoys, totals_.right_passed,
        totals_.right, evaluate_.workload.size, evaluate_.workload.inputs,
        PrecisionNote(evaluate_.workload.precision), device_.Facts().device);
    if (totals_.too_near > 0)
      PrintFormat(
          stdout,
          "{} more decoys are nearer to the truth than the outputs' rounding, or named by `coarse-layers`\n",
          totals_.too_near);
    if (totals_.failed > 0) PrintFormat(stdout, "{} could not be judged here\n", totals_.failed);
    if (totals_.known > 0)
      PrintFormat(stdout, "{} of them were in {}\n", totals_.known, options_.results.string());
    if (left > 0) PrintFormat(stdout, "{} are left: the same command with --results judges them\n", left);
  }

  const std::vector<Problem>& problems_;
  const AdmissionOptions& options_;
  AdmissionLog log_;
  Device device_;
  EvaluateOptions evaluate_;
  Totals totals_;
  int failures_ = 0;  // in a row
  const Clock::time_point start_ = Clock::now();
};

}  // namespace

int RunAdmission(const std::vector<Problem>& problems, const AdmissionOptions& options) {
  return Admission(problems, options).Run();
}

namespace {

auto Key(const AdmissionRecord& record) {
  return std::tie(record.problem_hash, record.workload.size, record.workload.inputs, record.device,
                  record.workload.precision);
}

}  // namespace

Json ToJson(const AdmissionRecord& record) {
  const auto text = [](const std::string& value) { return value.empty() ? Json() : Json(value); };
  return {{"event", "admission"},
          {"problem", record.problem},
          {"size", record.workload.size},
          {"admitted", record.error.empty() ? Json(record.reason.empty()) : Json()},
          {"reason", text(record.error.empty() ? record.reason : record.error)},
          {"device", record.device},
          {"inputs", record.workload.inputs},
          {"precision", record.workload.precision},
          {"problem_hash", record.problem_hash},
          {"decoys", record.decoys},
          {"rejected", record.rejected},
          {"right", record.right},
          {"right_passed", record.right_passed},
          {"too_near", record.too_near},
          {"python_not_tried", text(record.python_not_tried)},
          {"seconds", record.seconds}};
}

AdmissionRecord AdmissionFromJson(const nlohmann::json& event) {
  AdmissionRecord record;
  if (event.at("event") != "admission") return record;
  const auto text = [&](const char* key) {
    return event.at(key).is_null() ? std::string() : event.at(key).get<std::string>();
  };
  record.problem = text("problem");
  record.problem_hash = text("problem_hash");
  record.workload.size = text("size");
  record.workload.inputs = text("inputs");
  record.device = text("device");
  record.workload.precision = event.value("precision", "fp32");
  (event.at("admitted").is_null() ? record.error : record.reason) = text("reason");
  record.decoys = event.at("decoys");
  record.rejected = event.at("rejected");
  record.right = event.at("right");
  record.right_passed = event.at("right_passed");
  record.too_near = event.value("too_near", 0);
  if (event.contains("python_not_tried")) record.python_not_tried = text("python_not_tried");
  record.seconds = event.at("seconds");
  return record;
}

AdmissionLog::AdmissionLog(std::filesystem::path file) : file_(std::move(file)) {
  if (file_.empty() || !std::filesystem::exists(file_)) return;
  std::ifstream lines(file_);
  if (!lines)
    throw Error(ExitCode::kBadRequest, file_.string() + ": cannot be read", "check its permissions");
  for (std::string line; std::getline(lines, line);) {
    try {
      AdmissionRecord record = AdmissionFromJson(nlohmann::json::parse(line));
      if (!record.problem.empty()) records_.push_back(std::move(record));
    } catch (const nlohmann::json::exception&) {
    }
  }
}

const AdmissionRecord* AdmissionLog::Find(const AdmissionRecord& wanted) const {
  const auto found = std::find_if(records_.rbegin(), records_.rend(), [&](const AdmissionRecord& record) {
    return record.error.empty() && Key(record) == Key(wanted);
  });
  return found == records_.rend() ? nullptr : &*found;
}

void AdmissionLog::Add(const std::vector<Json>& events, const AdmissionRecord& record) {
  records_.push_back(record);
  if (file_.empty()) return;
  std::string text;
  for (const Json& event : events) text += event.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  std::ofstream out(file_, std::ios::app);
  out << text;
  if (!out.flush())
    throw Error(ExitCode::kBroken, file_.string() + ": cannot be written", "free some disk space");
}

}  // namespace kevin
