#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>

#include "agent/events.h"
#include "agent/records.h"
#include "env/environment.h"
#include "env/error.h"
#include "tools/commands.h"
#include "tools/places.h"
#include "tools/progress.h"
#include "tools/table.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kExamples = R"(
Examples:
  kevin bench relu.cpp --problem level1/19           one kernel: right? and how fast against eager PyTorch?
  kevin bench new.cpp old.cpp --problem level1/19    the first against the second, in the same pairs
  kevin bench relu.cpp --problem mine.toml --json    a problem of your own, one JSON object a line

Whatever the verdict, the exit code is 0; see `outcome`.)";

struct BenchOptions {
  std::string file, other, problem;
  EvaluateOptions evaluate;
  std::string isolation = "full";
  int threads = 0;
  bool json = false;
};

struct Judged {
  std::string path;
  Evaluation evaluation;
  double total_s = 0;
};

std::string RatioText(const Ratio& ratio) {
  return fmt::format("{:.3f}x [{:.3f}, {:.3f}]", ratio.value, ratio.low, ratio.high);
}

std::vector<std::string> RowOf(const Judged& judged) {
  const Measured* measured = std::get_if<Measured>(&judged.evaluation.outcome);
  if (!measured) return {judged.path, OutcomeName(judged.evaluation.outcome)};
  return {judged.path,
          OutcomeName(judged.evaluation.outcome),
          RatioText(measured->speedup),
          VerdictName(measured->verdict),
          fmt::format("{:.1f}", measured->candidate_us),
          fmt::format("{:.1f}", measured->reference_us),
          fmt::format("{:.1f}", measured->floor_us),
          fmt::format("{:.1f}", measured->gb_per_s),
          fmt::format("{:.1f}", measured->gflop_per_s),
          fmt::format("{:.2g} of {:.2g}", measured->max_error, measured->error_bound)};
}

void PrintReport(const std::vector<Judged>& all, const Problem& problem, const BenchOptions& options) {
  const Evaluation& last = all.back().evaluation;
  fmt::print("{} {} at size {}, inputs {}, on {}, isolation {}\n\n", problem.id, problem.name,
             options.evaluate.size, options.evaluate.inputs, last.device, last.isolation);
  std::vector<std::vector<std::string>> table{{"kernel", "outcome", "against eager (99 %)", "verdict", "us",
                                               "eager us", "floor us", "GB/s", "GFLOP/s", "error"}};
  for (const Judged& judged : all) table.push_back(RowOf(judged));
  fmt::print("{}", AlignedTable(table));
  for (const Judged& judged : all) {
    const std::string reason = OutcomeReason(judged.evaluation.outcome);
    if (!reason.empty()) fmt::print("\n{}: {}\n", judged.path, reason);
  }
  const Measured* measured = std::get_if<Measured>(&last.outcome);
  if (measured && measured->against_start) {
    fmt::print("\n{} against {}, in the same pairs: {}  {}\n", options.file, options.other,
               RatioText(*measured->against_start), VerdictName(measured->verdict_against_start));
  }
}

class Bench {
 public:
  explicit Bench(const BenchOptions& options)
      : options_(options),
        problem_(ProblemSet(ProblemSet::DefaultDirectory()).Find(options.problem)),
        progress_(stderr) {
    AtSize(problem_, options.evaluate.size);  // a wrong size is said before anything starts
  }

  int Run() {
    const std::string source = ReadSourceFile(options_.file);
    const std::string other = options_.other.empty() ? "" : ReadSourceFile(options_.other);
    progress_.Phase("sandbox self-test");
    environment_ = MakeCpuEnvironment(EnvironmentOptionsFor(options_.threads, options_.isolation));
    EvaluateOptions evaluate = options_.evaluate;
    if (!other.empty()) {
      Judge(options_.other, other, evaluate);
      if (std::holds_alternative<Measured>(judged_.back().evaluation.outcome)) evaluate.start_source = other;
    }
    Judge(options_.file, source, evaluate);
    progress_.Phase("");
    if (!options_.json) PrintReport(judged_, problem_, options_);
    return static_cast<int>(ExitCode::kDone);
  }

 private:
  void Judge(const std::string& path, const std::string& source, EvaluateOptions evaluate) {
    evaluate.on_phase = [&](const std::string& phase) { progress_.Phase(path + "  " + phase); };
    const Candidate candidate{"cpp", source};
    const auto start = Clock::now();
    Judged judged{path, environment_->Evaluate(problem_, candidate, evaluate), 0};
    judged.total_s = std::chrono::duration<double>(Clock::now() - start).count();
    if (options_.json) {
      const EvaluationRecord record = ToRecord(judged.evaluation, candidate, problem_, "bench");
      fmt::print("{}", ToLine(EvaluationEvent(record, problem_.id, path, judged.total_s)));
      std::fflush(stdout);
    }
    judged_.push_back(std::move(judged));
  }

  const BenchOptions& options_;
  Problem problem_;
  Progress progress_;
  std::unique_ptr<Environment> environment_;
  std::vector<Judged> judged_;
};

}  // namespace

void AddBenchCommand(CLI::App& app, Action* action) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command =
      app.add_subcommand("bench", "Judge a kernel file as an episode would, or two against each other");
  command->footer(kExamples);
  command->add_option("FILE", options->file, "The kernel: C++ with extern \"C\" void launch(...)")
      ->required();
  command->add_option("OTHER", options->other,
                      "A second kernel to time the first against, in the same pairs");
  command
      ->add_option("--problem", options->problem, "A problem's id (level1/19) or the path of its TOML file")
      ->required();
  command->add_option("--size", options->evaluate.size, "Size set")->capture_default_str();
  command
      ->add_option("--inputs", options->evaluate.inputs, "The problem's own inputs, or KernelBench's U[0,1)")
      ->check(CLI::IsMember({"default", "kernelbench"}))
      ->capture_default_str();
  command->add_flag("--confirm", options->evaluate.confirm,
                    "Measure as a winner is measured again: more pairs, no early stop");
  command->add_option("--threads", options->threads, "Threads of both sides; 0: all cores")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--isolation", options->isolation, "full, or reduced where the sandbox self-test fails")
      ->check(CLI::IsMember({"full", "reduced"}))
      ->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object a line");
  command->callback([options, action] { *action = [options] { return Bench(*options).Run(); }; });
}

}  // namespace kevin
