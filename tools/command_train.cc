#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <future>
#include <memory>

#include "agent/learn/batches.h"
#include "env/error.h"
#include "env/problem.h"
#include "tools/commands.h"
#include "tools/interrupt.h"
#include "tools/print.h"
#include "tools/progress.h"
#include "tools/run_choice.h"
#include "tools/suites.h"
#include "tools/train/model_text.h"
#include "tools/train/step_log.h"
#include "tools/train/train_settings.h"
#include "tools/train/trainer_process.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

struct TrainCommand {
  std::vector<std::string> databases = {"kevin.db"}, runs;
  std::string model, output, problems, without, held_out;
  TrainSettings settings;
  UnitOptions units;
  BatchOptions batches;
  int64_t steps = 0;
  double epochs = 0;
  uint64_t seed = 0;
  bool resume = false, recompute = false, optimizer_on_cpu = false, keep_cut_off = false, json = false;
};

constexpr const char* kExamples = R"(Examples:
  kevin train --model models/qwen --out run1                     GRPO in the Kevin recipe, 40 steps, from kevin.db
  kevin train --model models/qwen --out run1 --resume            goes on from the newest checkpoint
  kevin train --algorithm tpt --model models/qwen --out tpt1     imitate the fastest right kernel of each problem
  kevin train --algorithm sft --select all --min-speedup 1.2 --epochs 2 --model models/qwen --out sft1
  kevin train --lora 32 --quantization nf4 --device cuda:0 --model models/qwen --out lora1
  kevin train --held-out core --without core --model models/qwen --out run2
  torchrun --no-python --nproc-per-node 2 kevin train --model models/qwen --out run3

OUT gets checkpoints/, model/ (or adapter/), metrics.jsonl and tensorboard/.)";

std::vector<std::string> IdsOf(const std::string& suite) {
  if (suite.empty()) return {};
  const ProblemSet problems;
  return ProblemsOfSuite(problems, ProblemSet::DefaultDirectory(), suite);
}

LearnRequest RequestFrom(const TrainCommand& command, const Scheme& scheme) {
  LearnRequest request;
  for (const std::string& database : command.databases) {
    LearnRequest::Source source{database, {}};
    if (!command.runs.empty()) {
      const std::vector<RunFigures> all = Store::Open(database, OpenMode::kRead).ListRuns();
      for (const std::string& run : command.runs) source.runs.push_back(FindRunId(all, run, database));
    }
    request.sources.push_back(std::move(source));
  }
  request.problems = command.problems;
  request.left_out = IdsOf(command.without), request.held_out = IdsOf(command.held_out);
  request.scheme = scheme;
  return request;
}

void CheckOutput(const TrainCommand& command) {
  if (command.resume || !fs::exists(fs::path(command.output) / "checkpoints")) return;
  throw Error(ExitCode::kBadRequest, command.output + " holds a training run already",
              "go on with it (--resume), or choose another --out");
}

local::TrainOptions OptionsFrom(const TrainCommand& command, const Algorithm& algorithm, size_t units) {
  local::TrainOptions options = algorithm.train;
  options.model = command.model, options.output = command.output;
  options.seed = command.seed, options.resume = command.resume;
  options.recompute = command.recompute, options.adam.on_cpu = command.optimizer_on_cpu;
  const double epochs = command.epochs > 0 ? command.epochs : command.steps > 0 ? 0 : algorithm.epochs;
  const auto per_step = static_cast<size_t>(algorithm.units_per_step);
  if (epochs > 0) {
    const double steps = epochs * static_cast<double>(StepsPerEpoch(units, per_step));
    options.steps = std::max<int64_t>(1, std::llround(steps));
  } else if (command.steps > 0) {
    options.steps = command.steps;
  }
  return options;
}

void RequireUnits(const Units& units, const Algorithm& algorithm, const LearnTurns& turns) {
  if (!units.units.empty()) return;
  if (algorithm.material == Material::kRollouts) {
    throw Error(
        ExitCode::kBadRequest,
        fmt::format("none of the {} tasks shows a difference between its turns beyond the measurement "
                    "error, so there is nothing to learn",
                    turns.tasks()),
        "collect several episodes a problem (--episodes 16), or train with --keep-flat");
  }
  throw Error(ExitCode::kBadRequest,
              fmt::format("none of the {} turns fits {}", turns.turns().size(), algorithm.name),
              "sft --select all takes wrong answers too; dpo needs turns that differ");
}

class TrainRun {
 public:
  explicit TrainRun(const TrainCommand& command)
      : command_(command),
        algorithm_(AlgorithmFrom(command.settings)),
        turns_(RequestFrom(command, algorithm_.scheme)),
        units_(MakeUnits(algorithm_, turns_, command.units)),
        progress_(stderr) {
    RequireUnits(units_, algorithm_, turns_);
    CheckOutput(command);
    options_ = OptionsFrom(command, algorithm_, units_.units.size());
  }

  int Run() {
    const InterruptGuard interrupt;
    BatchOptions batches = command_.batches;
    batches.seed = command_.seed, batches.mask_cut_off = !command_.keep_cut_off;
    const BatchMaker maker(turns_, units_, algorithm_, LoadModelText(command_.model), batches);
    LearnBatch next = maker.Make(1);  // says what does not fit before a model is loaded
    progress_.Phase("loading " + command_.model);
    TrainerProcess trainer;
    opened_ = trainer.Open(options_);
    Begin();
    int64_t step = opened_.steps + 1, saved = opened_.steps;
    if (step > 1 && step <= options_.steps) next = maker.Make(step);
    for (; step <= options_.steps && !*interrupt.flag(); ++step) {
      const LearnBatch now = std::move(next);
      // The next batch is read while this one is learnt from.
      auto coming = std::async(std::launch::async,
                               [&] { return step < options_.steps ? maker.Make(step + 1) : LearnBatch{}; });
      Learn(trainer, now);
      next = coming.get();
      const bool is_due = options_.checkpoint_every > 0 && step % options_.checkpoint_every == 0;
      if (is_due || step == options_.steps) Saved(trainer.Save()), saved = step;
    }
    if (step <= options_.steps) {
      if (saved < step - 1) Saved(trainer.Save());
      Say("interrupted after step " + std::to_string(step - 1) + "; the same command with --resume goes on");
      return static_cast<int>(ExitCode::kInterrupted);
    }
    End(trainer.Finish());
    return static_cast<int>(ExitCode::kDone);
  }

 private:
  bool IsFirstRank() const { return opened_.rank == 0; }
  void Say(const std::string& text) {
    if (IsFirstRank()) progress_.Line(text);
  }

  void Begin() {
    if (!IsFirstRank()) return;
    log_.emplace(command_.output, opened_.steps);
    const char* what = algorithm_.material == Material::kRollouts  ? "tasks"
                       : algorithm_.material == Material::kAnswers ? "answers"
                                                                   : "pairs";
    Say(fmt::format("{}: {} {} ({} dropped) of {} turns, {} a step, {} steps of {} updates", algorithm_.name,
                    units_.units.size(), what, units_.dropped, turns_.turns().size(),
                    algorithm_.units_per_step, options_.steps, options_.updates_per_step));
    Say(fmt::format("{}: {:.3g} million numbers trained on {}{}{}", command_.model,
                    static_cast<double>(opened_.trained) / 1e6, options_.device,
                    opened_.ranks > 1 ? fmt::format(" by {} ranks", opened_.ranks) : "",
                    opened_.steps > 0 ? fmt::format(", from step {} on", opened_.steps + 1) : ""));
  }

  void Learn(TrainerProcess& trainer, const LearnBatch& learned) {
    const auto start = std::chrono::steady_clock::now();
    if (IsFirstRank()) progress_.Phase(fmt::format("step {}/{}", learned.batch.step, options_.steps));
    local::StepFigures figures;
    try {
      figures = trainer.Step(learned.batch);
    } catch (const Error& error) {
      throw Error(error.code(),
                  fmt::format("{} (batch of {})", error.what(), fmt::join(learned.problems, ", ")),
                  error.next_step());
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    spent_ += seconds, ++steps_;
    const double left =
        spent_ / static_cast<double>(steps_) * static_cast<double>(options_.steps - figures.step);
    if (!IsFirstRank()) return;
    const Json event = StepEvent(learned, figures, options_.steps, seconds, left);
    log_->Add(event);
    if (command_.json) Print(stdout, ToLine(event));
    Say(StepLine(event));
    for (const std::string& alarm : Alarms(event, *log_->first())) Say("  warning: " + alarm);
  }

  void Saved(const std::string& folder) { Say("checkpoint  " + folder); }

  void End(const std::string& folder) {
    if (!IsFirstRank()) return;
    Say("trained     " + folder);
    const Json event = {{"event", "trained"},
                        {"model", folder},
                        {"algorithm", algorithm_.name},
                        {"steps", options_.steps},
                        {"seconds", spent_}};
    if (command_.json) Print(stdout, ToLine(event));
  }

  const TrainCommand& command_;
  const Algorithm algorithm_;
  const LearnTurns turns_;
  const Units units_;
  local::TrainOptions options_;
  TrainerProcess::Opened opened_;
  Progress progress_;
  std::optional<StepLog> log_;
  double spent_ = 0;
  int64_t steps_ = 0;
};

void AddOptions(CLI::App* command, TrainCommand* o) {
  command->add_option("--model", o->model, "The model that is trained: a Hugging Face folder")->required();
  command->add_option("--out", o->output, "Folder for checkpoints and the trained model")->required();
  command->add_option("--db", o->databases, "A database; may be repeated")
      ->allow_extra_args(false)
      ->capture_default_str();
  command->add_option("--run", o->runs, "Only this run (may be repeated): id, unique beginning, or latest")
      ->allow_extra_args(false);
  command->add_option("--problems", o->problems, "Only problems whose ids begin so: level1/");
  command->add_option("--without", o->without, "A suite whose problems are not learnt from");
  command->add_option("--held-out", o->held_out,
                      "The suite of the evaluation; an error if one of it is learnt from");
  command->add_option("--steps", o->steps, "Batches (default: 40; sft, tpt, dpo: one epoch)")
      ->check(CLI::PositiveNumber);
  command->add_option("--epochs", o->epochs, "Instead of --steps")
      ->check(CLI::PositiveNumber)
      ->excludes("--steps");
  command->add_option("--seed", o->seed, "Of order and adapters")->capture_default_str();
  command->add_flag("--resume", o->resume, "Go on from the newest checkpoint in --out");
  command->add_option("--min-speedup", o->units.min_speedup, "sft, tpt: of right kernels")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--keep-flat", o->units.keep_flat, "Keep tasks whose turns do not differ");
  command->add_flag("--keep-cut-off", o->keep_cut_off, "Also train replies that the length limit cut off");
  command->add_option("--max-sample-tokens", o->batches.max_sample_tokens,
                      "Longer turns are left out; 0: none");
  command->add_option("--opening", o->batches.opening, "How the model's reasoning begins when all is well")
      ->capture_default_str();
  command
      ->add_flag("--recompute", o->recompute,
                 "Recompute activations in the backward pass: less memory, slower")
      ->group("Model and memory");
  command->add_flag("--optimizer-on-cpu", o->optimizer_on_cpu, "Keep the optimiser in main memory")
      ->group("Model and memory");
  AddTrainSettings(command, &o->settings);
  command->add_flag("--json", o->json, "One JSON object a step");
}

}  // namespace

void AddTrainCommand(CLI::App& app, Action* action) {
  auto options = std::make_shared<TrainCommand>();
  CLI::App* command = app.add_subcommand("train", "Train a local model on what is in the database");
  command->footer(kExamples);
  AddOptions(command, options.get());
  command->callback([options, action] { *action = [options] { return TrainRun(*options).Run(); }; });
}

}  // namespace kevin
