#include "tools/train_request.h"

#include <CLI/CLI.hpp>
#include <filesystem>

#include "env/error.h"
#include "tools/online_options.h"
#include "tools/run_choice.h"

namespace kevin {

namespace fs = std::filesystem;

void AddTrainRequest(CLI::App* command, TrainRequest* o) {
  command->add_option("--model", o->model, "The model that is trained: a Hugging Face folder")->required();
  command->add_option("--out", o->output, "Folder for checkpoints and the trained model")->required();
  command->add_option("--db", o->databases, "A database; may be repeated; --online: where turns are kept")
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
                      "Longer turns are left out (default: the model's context)");
  command->add_option("--opening", o->batches.opening, "How the model's reasoning begins when all is well")
      ->capture_default_str();
  command
      ->add_flag("--recompute", o->recompute,
                 "Recompute activations in the backward pass: less memory, slower")
      ->group("Model and memory");
  command->add_flag("--optimizer-on-cpu", o->optimizer_on_cpu, "Keep the optimiser in main memory")
      ->group("Model and memory");
  command->add_flag("--from-base", o->from_base, "Each step begins with --model's weights again (tpt)");
  AddTrainSettings(command, &o->settings);
  AddOnlineSettings(command, &o->sampling);
  command->add_flag("--json", o->json, "One JSON object a step");
}

LearnRequest RecordsFrom(const TrainRequest& request, const TrainSuites& suites, const Scheme& scheme) {
  LearnRequest wanted;
  for (const std::string& database : request.databases) {
    LearnRequest::Source source{database, {}};
    if (!request.runs.empty()) {
      const std::vector<RunFigures> all = Store::Open(database, OpenMode::kRead).ListRuns();
      for (const std::string& run : request.runs) source.runs.push_back(FindRunId(all, run, database));
    }
    wanted.sources.push_back(std::move(source));
  }
  wanted.problems = request.problems;
  wanted.left_out = IdsOfSuite(request.without), wanted.held_out = IdsOfSuite(request.held_out);
  for (const auto* more : {&suites.dev, &suites.test})
    wanted.held_out.insert(wanted.held_out.end(), more->begin(), more->end());
  wanted.scheme = scheme;
  return wanted;
}

void CheckOutput(const TrainRequest& request) {
  if (request.resume || !(fs::exists(fs::path(request.output) / "checkpoints") ||
                          fs::exists(fs::path(request.output) / "run.json")))
    return;
  throw Error(ExitCode::kBadRequest, request.output + " holds a training run already",
              "go on with it (--resume), or choose another --out");
}

// What of an algorithm follows from where its turns come from.
Algorithm AlgorithmOf(TrainRequest* request) {
  CheckOnlineSettings(request->sampling);
  Algorithm algorithm = AlgorithmFrom(request->settings);
  OnlineSettings& sampling = request->sampling;
  if (!sampling.online) return algorithm;
  if (sampling.problems_per_step == 0) sampling.problems_per_step = algorithm.units_per_step;
  // A round of imitation is an epoch over what it chose, a batch after the other.
  if (algorithm.material == Material::kAnswers && !request->settings.Has("--updates")) {
    const int answers =
        sampling.problems_per_step * (algorithm.picked == Picked::kBest ? 1 : sampling.samples);
    algorithm.train.updates_per_step = (answers + algorithm.units_per_step - 1) / algorithm.units_per_step;
  }
  return algorithm;
}

local::TrainOptions OptionsFrom(const TrainRequest& request, const Algorithm& algorithm) {
  local::TrainOptions options = algorithm.train;
  options.model = request.model, options.output = request.output;
  options.seed = request.seed, options.resume = request.resume;
  options.recompute = request.recompute, options.adam.on_cpu = request.optimizer_on_cpu;
  options.from_base = request.from_base;
  if (request.steps > 0) options.steps = request.steps;
  return options;
}

}  // namespace kevin
