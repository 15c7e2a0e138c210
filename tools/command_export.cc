#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "agent/feedback.h"
#include "agent/journal.h"
#include "agent/machine.h"
#include "agent/terminal.h"
#include "agent/text.h"
#include "env/error.h"
#include "env/problem/problem.h"
#include "env/process/files.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/export/kernel_forms.h"
#include "tools/export/records.h"
#include "trajectories/store.h"

namespace kevin {
namespace {

struct ExportOptions {
  std::string episode;
  bool best = false, any = false;
  int turn = -1;       // none
  std::string form;    // --as; empty: the source as it is
  std::string output;  // empty: EPISODE-TURN with the kind's ending
  std::vector<std::string> databases = {"kevin.db"};
  bool force = false, inference_only = false;
  RecordsOptions records;
};

constexpr const char* kExportExamples = R"(Examples:
  kevin export 01K9J4 --best -o relu.cpp       the fastest kernel of an episode; the file compiles alone
  kevin export 01K9J4 --turn 3                 the kernel of turn 3, to EPISODE-3.cpp (.cu and .ptx for a GPU)
  kevin export 01K9J4 --turn 2 --any           also a kernel that was not correct
  kevin export 01K9J4 --best -o -              to standard output
  kevin export 01K9J4 --best --as cu           CUDA C++ with the code that launches it, for nvcc
  kevin export 01K9J4 --best --as torch-package -o relu.py
                                               a PyTorch operator in one importable file, its sources beside it
  kevin export 01K9J4 --best --as torch-package -o relu
                                               the same as a folder for pip install ./relu
  kevin export --format jsonl -o turns.jsonl   every turn: prompt, reply, tokens, verdict, return, advantage
  kevin export --format sft -o best.jsonl      chats that end in the best kernel of each problem
  kevin export --format preference --run latest -o pairs.jsonl
                                               pairs of a better and a worse answer to the same prompt
  kevin export --format parquet --schema trajectory -o turns.parquet
                                               ids, masks, log-probabilities and advantages; the same as JSON lines in
                                               turns.jsonl; --schema sft, preference: TRL's columns, prompts: verl's
  kevin export --format kernelbench -o runs/kevin
                                               KernelBench's folder of a run, for its own scripts)";

// Without a winner (the episode runs, was killed, or its winner is no longer correct): the correct turn that measured
// fastest.
int BestTurn(const std::vector<TurnRecord>& turns, const EpisodeRecord& episode) {
  int best = -1;
  double best_speedup = 0;
  for (const TurnRecord& turn : turns) {
    const EvaluationRecord& e = turn.evaluation;
    if (e.correct && turn.turn == episode.best_turn) return turn.turn;
    if (!e.correct || !e.speedup || e.speedup->value <= best_speedup) continue;
    best = turn.turn;
    best_speedup = e.speedup->value;
  }
  if (best < 0) {
    throw Error(ExitCode::kBadRequest, fmt::format("episode {} has no correct kernel", episode.id),
                fmt::format("kevin show {} lists its turns; --turn N --any exports one of them all the same",
                            ShellWord(episode.id)));
  }
  return best;
}

std::string SpeedupText(const TurnRecord& turn, const EpisodeRecord& episode) {
  const EvaluationRecord& e = turn.evaluation;
  if (e.correct && episode.best_turn == turn.turn && episode.best_speedup) {
    return RatioText(*episode.best_speedup, episode.best_speedup_low.value_or(0),
                     episode.best_speedup_high.value_or(0)) +
           " against eager, 99 % interval, measured again after it had won";
  }
  if (!e.speedup) return "none: " + e.outcome + (e.reason.empty() ? "" : ": " + e.reason);
  return RatioText(e.speedup->value, e.speedup->low, e.speedup->high) + " against eager, 99 % interval";
}

std::vector<std::string> Heading(Store& store, const TurnRecord& turn, const EpisodeRecord& episode) {
  const auto problem = store.FindProblem(episode.problem_hash);
  const std::string name = problem ? fmt::format(" ({})", problem->name) : "";
  const EvaluationRecord& e = turn.evaluation;
  return {fmt::format("Problem:  {}{}, size {}", episode.problem, name, e.workload.size),
          fmt::format("Episode:  {}, turn {}, policy {}", episode.id, turn.turn, episode.policy),
          "Speed-up: " + SpeedupText(turn, episode),
          fmt::format("Device:   {}", e.device.empty() ? episode.device : e.device)};
}

TurnRecord FindTurn(Store& store, const EpisodeRecord& episode, const ExportOptions& options) {
  std::vector<TurnRecord> turns = CurrentTurns(store, episode.id);
  const int number = options.turn >= 0 ? options.turn : BestTurn(turns, episode);
  const auto turn =
      std::find_if(turns.begin(), turns.end(), [&](const TurnRecord& t) { return t.turn == number; });
  const std::string next = fmt::format("kevin show {} lists its turns", ShellWord(episode.id));
  if (turn == turns.end())
    throw Error(ExitCode::kBadRequest, fmt::format("episode {} has no turn {}", episode.id, number), next);
  const EvaluationRecord& e = turn->evaluation;
  if (e.source.empty()) {
    throw Error(ExitCode::kBadRequest,
                fmt::format("turn {} of episode {} has no source ({})", number, episode.id, e.outcome), next);
  }
  if (!e.correct && !options.any) {
    throw Error(ExitCode::kBadRequest,
                fmt::format("turn {} of episode {} is not correct ({}{}{})", number, episode.id, e.outcome,
                            e.reason.empty() ? "" : ": ", e.reason),
                "--best takes the fastest correct kernel; --any exports this one all the same");
  }
  return std::move(*turn);
}

int ExportOne(const ExportOptions& options) {
  Store store = Store::Open(options.databases.front(), OpenMode::kRead);
  const EpisodeRecord episode = store.FindEpisode(options.episode);
  const TurnRecord turn = FindTurn(store, episode, options);
  if (options.output != "-") {
    PrintFormat(stderr, "turn {} of {}: {}{}\n", turn.turn, episode.id,
                turn.evaluation.correct ? "" : "not correct; speed-up ", SpeedupText(turn, episode));
  }
  ExportKernel({options.form, options.output, FileName(fmt::format("{}-{}", episode.id, turn.turn)),
                Heading(store, turn, episode), options.force, options.inference_only},
               store, episode, turn);
  return static_cast<int>(ExitCode::kDone);
}

int RunExport(ExportOptions& options) {
  const bool has_records = !options.records.format.empty();
  if (has_records == !options.episode.empty()) {
    throw Error(
        ExitCode::kBadRequest,
        has_records ? "an episode and --format were given" : "neither an episode nor --format was given",
        "give an episode for a kernel, or --format for many turns; see kevin export --help");
  }
  if (has_records) {
    options.records.databases = options.databases;
    options.records.output = options.output, options.records.force = options.force;
    return ExportRecords(options.records);
  }
  if (options.best == (options.turn >= 0)) {
    throw Error(ExitCode::kBadRequest,
                options.best ? "both --best and --turn were given" : "no kernel was chosen",
                "give either --best or --turn N");
  }
  if (options.form == "cpp") {
    throw Error(ExitCode::kBadRequest, "--as cpp was removed",
                "leave it out: an exported .cpp file compiles alone; kevin bench FILE checks and times it");
  }
  if (options.form == "torch-extension") {
    throw Error(ExitCode::kBadRequest, "--as torch-extension was replaced",
                "use --as torch-package, which works under torch.compile and has gradients");
  }
  if (options.inference_only && options.form != "torch-package") {
    throw Error(ExitCode::kBadRequest, "--inference-only is for --as torch-package", "give both, or neither");
  }
  return ExportOne(options);
}

}  // namespace

void AddExportCommand(CLI::App& app, Action* action) {
  auto options = std::make_shared<ExportOptions>();
  CLI::App* command =
      app.add_subcommand("export", "Write a kernel from the database to a file, or many turns");
  command->footer(kExportExamples);
  command->add_option("episode", options->episode, "An episode's id, or a unique beginning of it");
  command->add_flag("--best", options->best, "The fastest correct kernel");
  command->add_option("--turn", options->turn, "The kernel of turn N")->check(WhyNotWhole);
  command->add_flag("--any", options->any, "With --turn: also a kernel that was not correct");
  command
      ->add_option("--as", options->form,
                   "In another form: cu (CUDA C++ with launch code) or torch-package (a PyTorch operator)")
      ->check(CLI::IsMember({"cu", "cpp", "torch-extension", "torch-package"}))
      ->option_text("cu|torch-package");
  command->add_flag("--inference-only", options->inference_only,
                    "With --as torch-package: gradients are an error instead of the original's backward");
  command->add_option(
      "-o,--output", options->output,
      "The file or folder to write; - for standard output (default for a kernel: EPISODE-TURN.cpp, "
      ".cu or .ptx)");
  command->add_flag("--force", options->force, "Overwrite the file if it exists");
  command->add_option("--db", options->databases, "The database; with --format it may be repeated")
      ->allow_extra_args(false)
      ->capture_default_str();
  AddRecordsOptions(command, &options->records);
  command->callback([options, action] { *action = [options] { return RunExport(*options); }; });
}

}  // namespace kevin
