#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "agent/episode.h"
#include "agent/events.h"
#include "agent/feedback.h"
#include "agent/journal.h"
#include "agent/knob_feedback.h"
#include "agent/machine.h"
#include "agent/memory.h"
#include "agent/parse.h"
#include "agent/ranking.h"
#include "agent/shape_records.h"
#include "agent/terminal.h"
#include "agent/text.h"
#include "env/error.h"
#include "env/graph_source.h"
#include "env/knobs/tune.h"
#include "env/problem/precision.h"
#include "env/problem/problem.h"
#include "env/process/files.h"
#include "env/verdict/words.h"
#include "tools/baselines.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/device_options.h"
#include "tools/episode_text.h"
#include "tools/policies.h"
#include "tools/privacy.h"
#include "tools/reference_check.h"
#include "tools/run_text.h"

namespace kevin {
namespace {

struct RunOptions {
  std::string kind;
  std::string problem, policy, database = "kevin.db", output = "kevin-out", from, continue_episode, note,
                               memory;
  std::string size, inputs = "default";  // size empty: the environment's default
  std::string diagnose = "best";
  DeviceOptions device;
  PolicyOptions model;
  PrivacyOptions privacy;
  std::optional<int> turns, tune;
  std::optional<double> until;
  uint64_t seed = 0;
  bool json = false;
  std::string baseline = "stored", prompts = "kevin";
};

constexpr int kDefaultTurns = 8;
constexpr const char* kDefaultPolicy = "search";

constexpr const char* kRunExamples = R"(Examples:
  kevin run --problem level1/19                     eight turns with the search policy
  kevin run --problem level1/23 --turns 20 --until 1.5
                                                    stop when 1.5x is confirmed
  kevin run --problem level1/40 --from mine.cpp     start from a kernel of your own (.cpp, .cu, .ptx, .py)
  kevin run --problem level1/19 --device cuda:0     CUDA kernels on the first GPU; cpu stays possible beside it
  kevin run --problem level1/1 --tune 16            try up to 16 settings of each kernel's knobs, then judge the best
  kevin run --problem level2/12 --memory kevin.db   begin with what was best on similar problems in this database
  kevin run --problem level1/19 --device cuda:0 --kind ptx --policy openai:gpt-5-mini
                                                    another kind of kernel: ptx, modelnew (KernelBench's)
  kevin run --continue 01K9J4 --turns 4             four more turns of a stored episode
  kevin run --problem my.toml --json                a problem of your own; one JSON object a line
  kevin run --problem level1/19 --policy openai:gpt-5-mini --budget-usd 1 --prices prices.json
  kevin run --problem level1/19 --policy openai:my-model --base-url http://127.0.0.1:8000/v1

A speed-up is the time of eager PyTorch over that of the kernel, with its 99 % interval.
Kernels go to kevin-out/EPISODE/, everything else to the database (kevin show).)";

Problem FindProblem(const std::string& id) { return ProblemSet().Find(id); }

// Comes before the store is opened, so that an unknown id leaves no empty database.
Problem GivenProblem(const RunOptions& options) {
  if (!options.problem.empty()) {
    Problem problem = FindProblem(options.problem);
    if (options.problem.ends_with(".toml")) CompileReference(problem);
    return AsAsked(std::move(problem), options.device);
  }
  if (!options.continue_episode.empty()) return {};
  throw Error(ExitCode::kBadRequest, "run: no problem given",
              "kevin run --problem level1/19; kevin problems lists them");
}

// The constructor finds every error of the request before anything is started.
class Run {
 public:
  explicit Run(const RunOptions& options)
      : options_(options), text_out_(options.json ? stderr : stdout), problem_(GivenProblem(options)) {
    std::string policy = options.policy.empty() ? kDefaultPolicy : options.policy;
    OpenExistingStore(policy);
    std::string kind = KindOfFile(options.from);  // it decides what "auto" means
    if (!options.continue_episode.empty()) {
      const EpisodeRecord earlier = store_->FindEpisode(options.continue_episode);
      episode_options_ = OptionsToContinue(earlier, 0);
      kind = earlier.kind;
      if (options.policy.empty()) policy = earlier.policy;
      if (options.problem.empty()) problem_ = ProblemOf(earlier);
      problem_ = earlier.workload.Apply(std::move(problem_));
      if (!options.note.empty()) episode_options_.note = options.note;
    } else {
      episode_options_.seed = options.seed;
      episode_options_.note = options.note;
      if (!options.from.empty()) {
        episode_options_.start_source = ReadSourceFile(options.from);
        const std::string of_file = KindOfFile(options.from);
        episode_options_.start_kind = IsPython(of_file) && IsPython(options.kind) ? options.kind : of_file;
      }
      episode_options_.prompts = options.prompts;
      episode_options_.kind = options.kind;
      if (options.kind.empty() && IsPython(kind)) episode_options_.kind = kind;
      if (!options.kind.empty()) kind = options.kind;
      episode_options_.workload = WorkloadFor(options.device, options.size, options.inputs,
                                              RulesFor(options.device.rules, kind, {&problem_}));
    }
    RequireAgreement({policy}, options.model, {&problem_}, options.privacy);
    if (!options.memory.empty())
      memory_ = OpenMemory(options.memory, LeftOutOfMemory({policy}, options.model, options.privacy));
    policy_ = store_ ? MakePolicy(policy, *store_, options.model) : MakePolicy(policy, options.model);
    episode_options_.sampling = policy_.sampling;
    episode_options_.prompt_token_budget = policy_.prompt_token_budget;
    episode_options_.asks_for_diff = policy_.asks_for_diff;
    const MachineFacts machine = ReadMachine();
    episode_options_.turns = options.turns.value_or(policy_.turns.value_or(kDefaultTurns));
    episode_options_.memory = memory_.get();
    episode_options_.until = options.until;
    episode_options_.diagnose = DiagnoseTurnsNamed(options.diagnose);
    episode_options_.profile = options.device.profile;
    episode_options_.profile_report = options.device.profile_report;
    episode_options_.output = options.output;
    episode_options_.machine = MachineLine(machine);
    episode_options_.threads = options.device.threads > 0 ? options.device.threads : machine.cores;
    environment_options_ = EnvironmentOptionsFor(options.device, ChooseDevice(options.device, kind));
    environment_options_.measure_ceilings = true;
    CheckWhatIsCertain();
    EpisodeOutput::RequireWritable(options.output);
  }

  int Go() {
    const InterruptGuard interrupt;
    Progress progress(text_out_);
    progress.Phase("starting the evaluator, testing the sandbox");
    const auto environment = MakeEnvironment(environment_options_);
    const std::string kind =
        episode_options_.kind.empty() ? environment->Facts().kinds.front() : episode_options_.kind;
    RequireKind(environment->Facts(), options_.device, kind);
    FindBaseline(environment->Facts(), {&progress, interrupt.flag()});
    episode_options_.tune = options_.tune.value_or(DefaultSettings(kind));
    if (!store_) store_.emplace(Store::Open(options_.database, OpenMode::kCreate));
    episode_options_.run =
        store_->BeginRun({{}, CommandLine(), KEVIN_VERSION, MachineJson(ReadMachine()), {}, {}});
    try {
      const EpisodeRecord episode = RunEpisode(problem_, *policy_.policy, *environment, *store_,
                                               episode_options_, Hooks(&progress), interrupt.flag());
      store_->FinishRun(episode_options_.run);
      progress.Phase("");
      Report(episode);
      return static_cast<int>(*interrupt.flag() ? ExitCode::kInterrupted : ExitCode::kDone);
    } catch (const Error&) {
      progress.Phase("");
      if (!episode_.empty()) ReportFailure();
      throw;
    }
  }

 private:
  // A database that is to be made is made after all checks, so that a request that fails leaves none.
  void OpenExistingStore(const std::string& policy) {
    const std::string& database = options_.database;
    const bool needs_records = !options_.continue_episode.empty() || policy.starts_with("replay:");
    std::error_code none;
    if (needs_records || database.find("://") != std::string::npos ||
        std::filesystem::exists(database, none)) {
      store_.emplace(Store::Open(database, needs_records ? OpenMode::kWrite : OpenMode::kCreate));
    } else {
      RequireWritable(database, false, "--db");
    }
  }

  void FindBaseline(const EnvironmentFacts& facts, const BaselineWork& work) {
    const Workload& asked = episode_options_.workload;
    const std::string& size = asked.size.empty() ? facts.default_size : asked.size;
    const BaselineQuestion question{&problem_, size, asked.tf32};
    baseline_ = BaselineFor(question, facts, options_.baseline, work);
    baseline_note_ = BaselineNote(baseline_, problem_, facts);
  }

  // Where the device is not known before it has started, RunEpisode checks the rest.
  void CheckWhatIsCertain() const {
    EpisodeOptions options = episode_options_;
    std::string& size = options.workload.size;
    if (!size.empty()) ShapesOf(problem_, size);
    const std::string kind = options.kind.empty() ? KindOnDevice(environment_options_.device) : options.kind;
    if (kind.empty()) return;
    if (size.empty()) size = environment_options_.device == "cpu" ? "small" : "full";
    try {
      GraphSource graphs(environment_options_.program_directory, environment_options_.cache_directory);
      RequirePolicyFor(
          problem_, *policy_.policy, options, kind,
          [&](const Problem& problem, const std::string& shape) { return graphs.Graph(problem, shape); });
    } catch (const Error& error) {
      if (!options_.problem.ends_with(".toml")) throw;
      throw Error(error.code(), options_.problem + ": " + error.what(), error.next_step());
    }
  }

  // The problem as it was asked then, even when its file has changed or is missing.
  Problem ProblemOf(const EpisodeRecord& episode) {
    const auto record = store_->FindProblem(episode.problem_hash);
    return record ? ParseProblem(record->text, episode.problem) : FindProblem(episode.problem);
  }

  EpisodeHooks Hooks(Progress* progress) {
    EpisodeHooks hooks;
    hooks.on_begin = [this, progress](const EpisodeRecord& episode) {
      episode_ = episode.id;
      last_turn_ = episode.turns + episode_options_.turns;
      progress->Line(fmt::format("{} {}, {}{}, policy {}; {}; isolation {}{}", problem_.id, problem_.name,
                                 episode.workload.size, PrecisionNote(episode.workload.precision),
                                 policy_.policy->Name(), episode.device, episode.isolation, baseline_note_));
      progress->Line(fmt::format("episode {} in {}", episode.id, options_.database));
      if (memory_) progress->Line(MemoryLine(memory_->database(), memory_->size(), memory_->left_out()));
    };
    hooks.on_phase = [this, progress](int turn, const std::string& phase) {
      progress->Phase(fmt::format("{}  {}", TurnLabel(turn), phase));
    };
    hooks.on_turn = [this, progress](const TurnRecord& turn, const EpisodeRecord& episode) {
      progress->Phase("");
      progress->Line(TurnLine(turn, TurnLabel(turn.turn)));
      if (options_.json) Print(stdout, TrialLines(turn, episode) + ToLine(TurnJson(turn, episode)));
    };
    return hooks;
  }

  // `turn` events count from 1, so the kernel of --from is an `evaluation`.
  Json TurnJson(const TurnRecord& turn, const EpisodeRecord& episode) const {
    Json event = turn.turn > 0 ? TurnEvent(turn, episode)
                               : EvaluationEvent(turn.evaluation, episode.problem, turn.source_path,
                                                 turn.seconds - turn.tune_s, turn.trials);
    event["episode"] = episode.id;
    AddBaselineFields(baseline_, "speedup", &event);
    return event;
  }

  std::string TurnLabel(int turn) const {
    return turn == 0 ? std::string("start") : fmt::format("turn {}/{}", turn, last_turn_);
  }

  void Report(const EpisodeRecord& episode) {
    if (options_.json) {
      Json event = EpisodeEvent(episode);
      AddBaselineFields(baseline_, "best_speedup", &event);
      Print(stdout, ToLine(event));
    }
    std::string text = "\n" + TurnTable(CurrentTurns(*store_, episode.id)) + "\n";
    if (episode.state == EpisodeState::kInterrupted)
      text += fmt::format("Stopped: {}; what was done is kept.\n", episode.state_reason);
    else if (!episode.state_reason.empty())
      text += fmt::format("Ended after turn {}: {}.\n", episode.turns, episode.state_reason);
    text += BestText(*store_, episode, baseline_);
    if (!episode.best_path.empty()) text += fmt::format("kernel    {}\n", episode.best_path);
    if (episode.requests > 0)
      text += fmt::format("requests  {}, {}\n", episode.requests, CostText(episode.cost_usd));
    text += fmt::format("episode   {} (kevin show {})\ndatabase  {}\n", episode.id, ShellWord(episode.id),
                        options_.database);
    Print(text_out_, text);
  }

  // The Error that follows says why; this says what was kept. The store itself may have failed.
  void ReportFailure() {
    try {
      store_->FinishRun(episode_options_.run);
      Report(store_->FindEpisode(episode_));
    } catch (const Error&) {
      Print(stderr, fmt::format("episode {}: what was done is in {}\n", episode_, options_.database));
    }
  }

  const RunOptions& options_;
  std::FILE* const text_out_;
  Problem problem_;
  std::optional<Store> store_;  // none until it is made
  std::unique_ptr<Memory> memory_;
  ChosenPolicy policy_;
  EpisodeOptions episode_options_;
  EnvironmentOptions environment_options_;
  std::optional<Baseline> baseline_;
  std::string baseline_note_;
  std::string episode_;  // empty until it has begun
  int last_turn_ = 0;
};

}  // namespace

void AddRunCommand(CLI::App& app, Action* action) {
  auto options = std::make_shared<RunOptions>();
  RunOptions& o = *options;
  CLI::App* run = app.add_subcommand("run", "Make one problem faster, turn after turn");
  run->footer(kRunExamples);
  run->add_option("--problem", o.problem, "An id (level1/19) or a TOML file of your own");
  run->add_option("--turns", o.turns, "How many turns; with --continue how many more (default 8)")
      ->check(CLI::Range(1, 10000));
  run->add_option(
      "--policy", o.policy,
      "search, openai:MODEL, openai-responses:MODEL, anthropic:MODEL, local:DIR or replay:EPISODE "
      "(default search)");
  CLI::Option* from =
      run->add_option("--from", o.from, "Start from this kernel; it is judged first, as turn 0");
  CLI::Option* resume =
      run->add_option("--continue", o.continue_episode, "Continue a stored episode, under its settings");
  CLI::Option* prompts = AddPromptsOption(run, &o.prompts);
  run->add_option("--note", o.note, "A hint for the policy, in every prompt");
  run->add_option("--until", o.until, "Stop when this speed-up is confirmed")->check(CLI::PositiveNumber);
  CLI::Option* seed = run->add_option("--seed", o.seed, "The seed of the policy's choices")
                          ->check(WhyNotWhole)
                          ->capture_default_str();
  CLI::Option* size =
      run->add_option("--size", o.size, "Size set: small or full (default: small on a CPU, full on a GPU)");
  CLI::Option* inputs =
      run->add_option("--inputs", o.inputs, "kernelbench: its uniform inputs instead of ours")
          ->check(CLI::IsMember({"default", "kernelbench"}))
          ->capture_default_str();
  AddTuneOption(run, &o.tune);
  AddMemoryOption(run, &o.memory);
  AddDiagnoseOption(run, &o.diagnose, "turns that lead or may");
  AddBaselineOption(run, &o.baseline);
  CLI::Option* kind = AddKindOption(run, &o.kind);
  AddDeviceOptions(run, &o.device);
  AddPolicyOptions(run, &o.model);
  AddPrivacyOptions(run, &o.privacy);
  run->add_option("--db", o.database, "The database")->capture_default_str();
  run->add_option("--out", o.output, "Where kernels are written")->capture_default_str();
  run->add_flag("--json", o.json, "One JSON object a line on stdout, all else on stderr");
  for (CLI::Option* option :
       {from, seed, size, inputs, kind, prompts, run->get_option("--tf32"), run->get_option("--precision")})
    option->excludes(resume);
  run->callback([options, action] { *action = [options] { return Run(*options).Go(); }; });
}

}  // namespace kevin
