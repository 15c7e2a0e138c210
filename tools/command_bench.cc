#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "agent/diagnosis_text.h"
#include "agent/events.h"
#include "agent/gpu_feedback.h"
#include "agent/knob_feedback.h"
#include "agent/machine.h"
#include "agent/parse.h"
#include "agent/rates.h"
#include "agent/records.h"
#include "agent/terminal.h"
#include "env/environment.h"
#include "env/error.h"
#include "env/knobs/tune.h"
#include "env/problem/problem.h"
#include "env/process/files.h"
#include "env/process/machine.h"
#include "env/verdict/begin_evaluation.h"
#include "env/verdict/shapes.h"
#include "env/verdict/words.h"
#include "tools/baselines.h"
#include "tools/bench_text.h"
#include "tools/commands.h"
#include "tools/device_options.h"
#include "tools/episode_text.h"
#include "tools/examination.h"
#include "tools/kernelbench_run.h"
#include "tools/report/format.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

// A comparison of two kernels measures longer, because "ambiguous" is no answer to it.
constexpr double kPatienceForTwo = 10;

constexpr const char* kBenchExamples = R"(
Examples:
  kevin bench relu.cpp --problem level1/19           one kernel: is it correct, and how fast against eager PyTorch?
  kevin bench new.cpp old.cpp --problem level1/19    the first against the second, in the same pairs
  kevin bench relu.cpp --problem mine.toml --json    a problem of your own, one JSON object a line
  kevin bench relu.cu --problem level1/19            CUDA device code with a launch function, on the GPU
  kevin bench relu.cu --problem level1/19 --device cuda:1 --include cutlass/include
  kevin bench relu.cu --problem level1/19 --profile relu.ncu-rep --sass --sanitize
  kevin bench half.cu --problem level1/19 --precision bf16
  kevin bench mm.cpp --problem level1/1 --tune 16 -o tuned.cpp
                                                     a kernel with knobs (// knob TILE: 32 64 128): the best setting
  kevin bench --kernelbench runs/mine
                                                     everything that a run of KernelBench wrote; repeated, it continues
  kevin bench --kernelbench a100.json --results judged --size v0 --json
                                                     published candidates (leaderboard, CUDA-L1), for their first shapes
  kevin bench --kernelbench runs/mine --device cpu --compat kernelbench
                                                     KernelBench's own verdict beside it, and why they disagree
  kevin bench relu.cu --problem level1/19 --debug    one call with printf allowed, no verdict

Whatever the verdict, the exit code is 0; see `outcome`.)";

struct BenchOptions {
  std::string file, other, problem;
  std::string kind;  // empty: from the files' endings
  std::string size;  // empty: the environment's default
  DeviceOptions device;
  EvaluateOptions evaluate;
  std::optional<double> patience;
  std::optional<int> tune;
  std::string output;  // the kernel with the chosen setting; empty: not written
  ExamineChoice examine;
  std::string baseline = "stored", diagnose = "best";
  bool json = false;
  KernelBenchRunOptions published;  // --kernelbench
};

// "cpp", "cuda", "ptx".
std::string GivenKind(const BenchOptions& options) {
  if (!options.kind.empty()) return options.kind;
  for (const std::string& file : {options.file, options.other}) {
    if (file.empty() || !KindOfFile(file).empty()) continue;
    throw Error(ExitCode::kBadRequest, fmt::format("{}: its ending is not .cpp, .cu, .ptx or .py", file),
                "say what it is with --kind cpp, cuda, ptx, modelnew or triton");
  }
  const std::string kind = KindOfFile(options.file);
  const std::string other = options.other.empty() ? "" : KindOfFile(options.other);
  if (!kind.empty() && !other.empty() && kind != other) {
    throw Error(ExitCode::kBadRequest,
                fmt::format("{} is of kind {}, {} of kind {}: they do not run on one device in the same way",
                            options.file, kind, options.other, other),
                "judge them one at a time, or say --kind when an ending misleads");
  }
  return kind;
}

class Bench {
 public:
  explicit Bench(const BenchOptions& options)
      : options_(options),
        problem_(AsAsked(ProblemSet().Find(options.problem), options.device)),
        kind_(GivenKind(options)),
        progress_(stderr) {
    if (!options.size.empty()) ShapesOf(problem_, options.size);  // fails before anything starts
  }

  int Run() {
    const std::string source = ReadSourceFile(options_.file);
    std::string other = options_.other.empty() ? "" : ReadSourceFile(options_.other);
    const EnvironmentOptions environment =
        EnvironmentOptionsFor(options_.device, ChooseDevice(options_.device, kind_));
    if (!options_.output.empty()) RequireWritable(options_.output, false, "--output");
    progress_.Phase("starting the evaluator, testing the sandbox");
    environment_ = MakeEnvironment(environment);
    const EnvironmentFacts& facts = environment_->Facts();
    RequireKind(facts, options_.device, kind_);
    RequireGpuFor(options_.examine, *environment_);
    EvaluateOptions evaluate = options_.evaluate;
    evaluate.workload =
        WorkloadFor(options_.device, options_.size.empty() ? facts.default_size : options_.size,
                    options_.evaluate.workload.inputs, RulesFor(options_.device.rules, kind_, {&problem_}));
    evaluate.patience = options_.patience.value_or(1);
    evaluate.profile = options_.device.profile;
    evaluate.profile_report = options_.device.profile_report;
    if (options_.examine.debug) return Look(WithFirstValues(source, evaluate));
    baseline_ = BaselineFor({&problem_, evaluate.workload.size, evaluate.workload.tf32}, facts,
                            options_.baseline, {&progress_});
    if (!other.empty()) {
      other = Judge(options_.other, other, evaluate);
      if (std::holds_alternative<Measured>(judged_.back().evaluation.outcome)) evaluate.start_source = other;
      evaluate.patience = options_.patience.value_or(kPatienceForTwo);
    }
    const std::string judged = Judge(options_.file, source, evaluate);
    if (!options_.output.empty()) WriteFile(options_.output, judged, false);
    progress_.Phase("");
    if (!options_.json) PrintBenchReport(judged_, problem_, baseline_, facts);
    return options_.examine.any() ? Look(judged) : static_cast<int>(ExitCode::kDone);
  }

 private:
  int Look(const std::string& source) {
    progress_.Phase(options_.file + "  examine");
    // At one shape: the first of several.
    const std::string size =
        options_.size.empty() ? options_.size : ShapesOf(problem_, options_.size).front().size;
    const Examination examination = Examine(*environment_, problem_, {kind_, source}, options_.examine, size,
                                            options_.evaluate.workload.inputs);
    progress_.Phase("");
    if (options_.json) {
      Print(stdout, ToLine(ExaminationEvent(examination, options_.examine, problem_.id, options_.file)));
    } else {
      PrintFormat(stdout, "\n{}", ExaminationText(examination, options_.examine));
    }
    return static_cast<int>(ExitCode::kDone);
  }

  std::string WithFirstValues(const std::string& source, const EvaluateOptions& evaluate) {
    TuneOptions tune;
    tune.evaluate = evaluate;
    return Tune(problem_, {kind_, source}, *environment_, tune).candidate.source;
  }

  Evaluation NotJudged(const Outcome& outcome, const EvaluateOptions& evaluate) const {
    Evaluation evaluation;
    evaluation.outcome = outcome;
    evaluation.workload = AskedOf(problem_, evaluate.workload);
    evaluation.device = environment_->Facts().device;
    evaluation.isolation = environment_->Facts().isolation;
    return evaluation;
  }

  Tuned ChooseSetting(const std::string& source, const EvaluateOptions& evaluate) {
    TuneOptions tune;
    tune.settings = options_.tune.value_or(DefaultSettings(kind_));
    tune.evaluate = evaluate;
    return Tune(problem_, {kind_, source}, *environment_, tune);
  }

  // `best` is FILE, where there are two. At the weakest of several shapes.
  std::optional<Diagnosis> DiagnosisOf(const Candidate& candidate, const Evaluation& evaluation,
                                       const std::string& path, EvaluateOptions evaluate) {
    const bool is_wanted =
        options_.diagnose == "all" || (options_.diagnose == "best" && path == options_.file);
    if (!is_wanted || !std::holds_alternative<Measured>(evaluation.outcome)) return std::nullopt;
    if (!evaluation.shapes.empty())
      evaluate.workload.size = evaluation.shapes[WeakestShape(evaluation.shapes)].size;
    return environment_->Diagnose(problem_, candidate, evaluate);
  }

  // The text that was judged.
  std::string Judge(const std::string& path, const std::string& source, EvaluateOptions evaluate) {
    evaluate.on_phase = [&](const std::string& phase) { progress_.Phase(path + "  " + phase); };
    const Tuned tuned = ChooseSetting(source, evaluate);
    const Candidate& candidate = tuned.candidate;
    const auto start = Clock::now();
    Judged judged{path, {}, 0, tuned.trials};
    if (tuned.error.empty()) {
      judged.evaluation = environment_->Evaluate(problem_, candidate, evaluate);
    } else {
      judged.evaluation = NotJudged(CompileFailed{tuned.error}, evaluate);
    }
    judged.total_s = SecondsSince(start);
    judged.diagnosis = DiagnosisOf(candidate, judged.evaluation, path, evaluate);
    if (options_.json) {
      for (const KnobTrial& trial : tuned.trials) Print(stdout, ToLine(TrialEvent(trial, problem_.id)));
      const EvaluationRecord record = ToRecord(judged.evaluation, candidate, problem_, "bench");
      Json event = EvaluationEvent(record, problem_.id, path, judged.total_s, judged.trials);
      event["diagnosis"] = OrNull(DiagnosisTextOf(judged));
      AddBaselineFields(baseline_, "speedup", &event);
      Print(stdout, ToLine(event));
    }
    judged_.push_back(std::move(judged));
    return candidate.source;
  }

  const BenchOptions& options_;
  Problem problem_;
  std::string kind_;
  Progress progress_;
  std::unique_ptr<Environment> environment_;
  std::optional<Baseline> baseline_;
  std::vector<Judged> judged_;
};

int BenchPublished(const BenchOptions& options) {
  KernelBenchRunOptions published = options.published;
  published.size = options.size;
  published.evaluate = options.evaluate;
  published.evaluate.patience = options.patience.value_or(1);
  published.device = options.device;
  published.json = options.json;
  return RunKernelBench(published);
}

// FILE and --problem belong to a kernel's file, these options to what others published.
void AddKernelBenchOptions(CLI::App* command, KernelBenchRunOptions* published) {
  CLI::Option* path = command->add_option(
      "--kernelbench", published->path,
      "Judge published candidates with ModelNew: a run's folder of KernelBench, the leaderboard's folder, or a file of rows");
  command
      ->add_option(
          "--results", published->results,
          "With --kernelbench: the folder of the results (default: the folder that is judged, or its folder kevin "
          "where KernelBench's own results are in it; beside a file, FILE-results)")
      ->needs(path);
  command
      ->add_option(
          "--most", published->most,
          "With --kernelbench: judge so many, the rest in the next call; with --compat, those that lack "
          "either verdict count")
      ->check(CLI::PositiveNumber)
      ->needs(path);
  published->parallel = 0;
  command
      ->add_option(
          "--parallel", published->parallel,
          "With --kernelbench: candidates at once, one timed while others are built (default: half the cores on "
          "a GPU, at most 16; 1 on a CPU)")
      ->check(CLI::Range(1, 64))
      ->needs(path);
  CLI::Option* compat =
      command
          ->add_option(
              "--compat", published->compat,
              "With --kernelbench: KernelBench's own verdict (its tolerance, seeds, trials and timing) "
              "beside Kevin's; each disagreement with its reason")
          ->check(CLI::IsMember({"kernelbench"}))
          ->needs(path);
  command
      ->add_option(
          "--compat-from", published->compat_from,
          "With --compat: a checkout of KernelBench, whose problem files are the references, at their own shapes (those "
          "of --size full)")
      ->check(CLI::ExistingDirectory)
      ->needs(compat);
  for (const char* name : {"FILE", "OTHER", "--problem", "--kind", "--tune", "--output"})
    path->excludes(name);
  CLI::Option* file = command->get_option("FILE")->required(false);
  CLI::Option* problem = command->get_option("--problem")->required(false);
  command->parse_complete_callback([command, path, file, problem] {
    if (path->count() > 0) return;
    for (const CLI::Option* option : {file, problem}) {
      if (option->count() == 0) throw CLI::RequiredError(option->get_name());
    }
  });
}

}  // namespace

void AddBenchCommand(CLI::App& app, Action* action) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command =
      app.add_subcommand("bench", "Judge a kernel file as an episode would, or two against each other");
  command->footer(kBenchExamples);
  command
      ->add_option(
          "FILE", options->file,
          "The kernel: C++ with extern \"C\" void launch(...), or CUDA or PTX with a launch function")
      ->required();
  command->add_option("OTHER", options->other,
                      "A second kernel to time the first against, in the same pairs");
  command
      ->add_option("--problem", options->problem, "A problem's id (level1/19) or the path of its TOML file")
      ->required();
  command
      ->add_option("--kind", options->kind,
                   "cpp, cuda, ptx, modelnew or triton (default: by the file's ending; .py: modelnew)")
      ->check(CLI::IsMember({"cpp", "cuda", "ptx", "modelnew", "triton"}));
  command->add_option("--size", options->size, "Size set (default: small on a CPU, full on a GPU)");
  command
      ->add_option("--inputs", options->evaluate.workload.inputs,
                   "The problem's own inputs, or KernelBench's U[0,1)")
      ->check(CLI::IsMember({"default", "kernelbench"}))
      ->capture_default_str();
  command->add_flag("--confirm", options->evaluate.confirm,
                    "Measure as a winner is measured again: more pairs, no early stop");
  command
      ->add_option("--patience", options->patience,
                   "How many times longer than usual pairs may be taken for a verdict (default: 1; of two "
                   "kernels against each other: 10)")
      ->check(CLI::Range(1.0, 100.0));
  AddTuneOption(command, &options->tune);
  AddDiagnoseOption(command, &options->diagnose, "the first kernel");
  command->add_option("-o,--output", options->output,
                      "Write the kernel with the chosen setting in place of its knobs to this file");
  AddDeviceOptions(command, &options->device);
  AddExamineOptions(command, &options->examine);
  AddBaselineOption(command, &options->baseline);
  command->add_flag("--json", options->json, "One JSON object a line");
  AddKernelBenchOptions(command, &options->published);
  command->callback([options, action] {
    *action = [options] {
      return options->published.path.empty() ? Bench(*options).Run() : BenchPublished(*options);
    };
  });
}

}  // namespace kevin
