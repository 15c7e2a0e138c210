#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>

#include "agent/events.h"
#include "agent/journal.h"
#include "agent/machine.h"
#include "agent/memory.h"
#include "agent/records.h"
#include "agent/rollout/rollout.h"
#include "agent/terminal.h"
#include "agent/text.h"
#include "env/device_pool.h"
#include "env/error.h"
#include "env/knobs/tune.h"
#include "env/problem/precision.h"
#include "env/problem/problem.h"
#include "tools/collect_options.h"
#include "tools/collection.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/device_options.h"
#include "tools/policies.h"
#include "tools/privacy.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLogEvery = std::chrono::seconds(60);
constexpr int kParallelOnCpu = 2, kParallelPerGpu = 8;

class Collection {
 public:
  explicit Collection(const CollectOptions& options)
      : options_(options),
        text_out_(options.json ? stderr : stdout),
        joins_(!options.join.empty()),
        spec_(options.spec),
        memory_(options.spec.memory.empty() ? nullptr : OpenMemory(options.spec.memory)),
        store_(
            (Check(options), Store::Open(options.database, joins_ ? OpenMode::kWrite : OpenMode::kCreate))),
        queue_(store_) {
    if (joins_) {
      const CollectionRecord collection = queue_.Find(options.join);
      spec_ = CollectionFromJson(collection.spec);
      run_ = collection.run;
      LoadStoredProblems();
    } else {
      FindProblems();
    }
    std::vector<Problem*> problems;
    for (auto& [hash, problem] : problems_) problems.push_back(&problem);
    RequireAgreement(spec_.policies, options.model, problems, options.privacy);
    const auto leave_out = LeftOutOfMemory(spec_.policies, options.model, options.privacy);
    if (!spec_.memory.empty() && (joins_ || leave_out)) memory_ = OpenMemory(spec_.memory, leave_out);
    if (memory_) spec_.memory = memory_->database();
    policies_.emplace(spec_, options.model, options.rollout.budget, store_, "run " + run_);
    devices_ = ChooseDevices(options.devices, options.device, spec_.kind);
    const EpisodeOutput writable(options.output);
  }

  int Go() {
    const InterruptGuard interrupt(2);
    Progress progress(text_out_);
    progress_ = &progress;
    progress.Phase("starting the evaluator, testing the sandbox");
    const std::unique_ptr<Environment> environment = StartDevices();
    RolloutOptions rollout = Enter(environment->Facts());
    Announce(environment->Facts(), rollout.parallel);
    RolloutSources sources;
    sources.problem = [this](const EpisodeSpec& spec) -> const Problem& { return ProblemOf(spec); };
    sources.policy = [this](const std::string& name) -> Policy& { return policies_->Get(name); };
    sources.settings = [this](const std::string& name) { return policies_->SettingsOf(name); };
    const RolloutEnd end = RunRollout(store_, *environment, sources, rollout, Hooks(rollout),
                                      interrupt.flag(), interrupt.again());
    store_.FinishRun(rollout.worker_run);
    progress.Phase("");
    Report(end, *interrupt.flag());
    return static_cast<int>(*interrupt.flag() ? ExitCode::kInterrupted : ExitCode::kDone);
  }

 private:
  // Checks that need no database come before one is made.
  static void Check(const CollectOptions& options) {
    if (options.join.empty() && options.suite.empty()) {
      throw Error(ExitCode::kBadRequest, fmt::format("{}: no problems given", options.command),
                  fmt::format("kevin {} --suite level1; kevin problems lists them", options.command));
    }
    if (options.join.empty()) ProblemsOfSuite(ProblemSet(), ProblemSet::DefaultDirectory(), options.suite);
  }

  // --- The request ---

  void FindProblems() {
    const ProblemSet problems;
    for (const std::string& id : ProblemsOfSuite(problems, ProblemSet::DefaultDirectory(), options_.suite,
                                                 &left_out_, PrecisionNamed(options_.device.precision))) {
      Problem problem = AsAsked(problems.Find(id), options_.device);
      if (!spec_.workload.size.empty()) ShapesOf(problem, spec_.workload.size);
      spec_.tasks.push_back({problem.id, problem.content_hash});
      problems_.emplace(problem.content_hash, std::move(problem));
    }
    spec_.policies = StoredPolicyNames(options_.policies, options_.model);
    spec_.model_options = SamplingJson(options_.model);
    std::vector<const Problem*> problems_to_solve;
    for (const auto& [hash, problem] : problems_) problems_to_solve.push_back(&problem);
    spec_.workload = WorkloadFor(options_.device, spec_.workload.size, spec_.workload.inputs,
                                 RulesFor(options_.device.rules, spec_.kind, problems_to_solve));
  }

  // The problems as the run stored them, not as this machine's files are now.
  void LoadStoredProblems() {
    for (const auto& task : spec_.tasks) {
      const auto record = store_.FindProblem(task.problem_hash);
      if (!record) {
        throw Error(ExitCode::kBadRequest,
                    fmt::format("{}: the text of {} is missing", store_.path().string(), task.problem),
                    "start another run with --new-run");
      }
      problems_.emplace(task.problem_hash, spec_.workload.Apply(ParseProblem(record->text, task.problem)));
    }
  }

  const Problem& ProblemOf(const EpisodeSpec& spec) const {
    const auto found = problems_.find(spec.problem_hash);
    if (found != problems_.end()) return found->second;
    throw Error(ExitCode::kBadRequest, fmt::format("{} has changed since the run began", spec.problem),
                "start another run with --new-run");
  }

  std::unique_ptr<Environment> StartDevices() const {
    std::vector<std::unique_ptr<Environment>> environments;
    for (const std::string& device : devices_) {
      EnvironmentOptions environment = EnvironmentOptionsFor(options_.device, device);
      environment.measure_ceilings = true;
      environments.push_back(MakeEnvironment(environment));
    }
    if (environments.size() == 1) return std::move(environments.front());
    return std::make_unique<DevicePool>(std::move(environments));
  }

  // --- The run ---

  RolloutOptions Enter(const EnvironmentFacts& facts) {
    if (spec_.kind.empty()) spec_.kind = facts.kinds.front();
    RequireKind(facts, options_.device, spec_.kind);
    if (spec_.workload.size.empty()) spec_.workload.size = facts.default_size;
    if (!joins_) spec_.diagnose = options_.diagnose;
    if (!joins_) spec_.tune = options_.tune.value_or(DefaultSettings(spec_.kind));
    const MachineFacts machine = ReadMachine();
    const RunRecord process{{}, CommandLine(), KEVIN_VERSION, MachineJson(machine), {}, {}};
    RolloutOptions rollout = options_.rollout;
    if (joins_) {
      rollout.worker_run = queue_.Join(run_, process);
      resumed_ = true;
    } else {
      spec_.windows = policies_->windows();
      std::vector<ProblemRecord> records;
      for (const auto& [hash, problem] : problems_) records.push_back(ToRecord(problem));
      const auto opened =
          queue_.Open(KeyOf(spec_), ToJson(spec_), EpisodesOf(spec_), records, process, options_.new_run);
      run_ = opened.collection;
      rollout.worker_run = opened.worker_run;
      resumed_ = opened.resumed;
      if (resumed_) GoOn(rollout.worker_run);
    }
    rollout.collection = run_;
    const int on_these =
        !IsForGpu(spec_.kind) ? kParallelOnCpu : kParallelPerGpu * static_cast<int>(devices_.size());
    rollout.parallel = options_.parallel > 0 ? options_.parallel : on_these;
    rollout.episode.kind = spec_.kind;
    rollout.episode.workload = spec_.workload;
    rollout.episode.prompts = spec_.prompts;
    rollout.episode.note = spec_.note;
    rollout.episode.tune = spec_.tune;
    rollout.episode.memory = memory_.get();
    rollout.episode.diagnose = DiagnoseTurnsNamed(spec_.diagnose);
    rollout.episode.output = options_.output;
    rollout.episode.machine = MachineLine(machine);
    rollout.episode.threads = options_.device.threads > 0 ? options_.device.threads : machine.cores;
    const CollectionUsage used = queue_.Usage(run_, rollout.budget.costs_are_known);
    policies_->AddUsed(used);
    totals_ = {run_,        static_cast<int>(spec_.tasks.size()), static_cast<int>(spec_.policies.size()),
               spec_.turns, static_cast<int>(devices_.size()),    used.turns};
    return rollout;
  }

  void GoOn(const std::string& worker_run) {
    try {
      policies_->GoOnWith(CollectionFromJson(queue_.Find(run_).spec), spec_, "run " + run_);
    } catch (const Error&) {
      store_.FinishRun(worker_run);
      throw;
    }
  }

  void Announce(const EnvironmentFacts& facts, int parallel) {
    const QueueCounts counts = queue_.Count(run_);
    const int64_t all = counts.waiting + counts.leased + counts.done + counts.parked;
    progress_->Phase("");
    progress_->Line(fmt::format("{}{}, {} of {}, policy {}; {}; isolation {}; {} at once",
                                Counted(static_cast<int64_t>(spec_.tasks.size()), "problem"),
                                PrecisionNote(spec_.workload.precision), Counted(all, "episode"),
                                Counted(spec_.turns, "turn"), fmt::join(spec_.policies, ", "), facts.device,
                                facts.isolation, parallel));
    progress_->Line(fmt::format(
        "run {} in {}{}", run_, store_.path().string(),
        resumed_ ? fmt::format(", continued: {} of {} episodes are done", counts.done, all) : std::string()));
    if (memory_) progress_->Line(MemoryLine(spec_.memory, memory_->size(), memory_->left_out()));
    for (const LeftOut& one : left_out_)
      progress_->Line(fmt::format("left out: {} does not count: {}", one.id, one.reason));
    if (!options_.json) return;
    Print(stdout, ToLine({{"event", "run"},
                          {"run", run_},
                          {"resumed", resumed_},
                          {"database", store_.path().string()},
                          {"problems", spec_.tasks.size()},
                          {"policies", spec_.policies},
                          {"episodes", all},
                          {"done", counts.done},
                          {"turns", spec_.turns},
                          {"device", facts.device},
                          {"parallel", parallel}}));
  }

  RolloutHooks Hooks(const RolloutOptions& rollout) {
    RolloutHooks hooks;
    hooks.on_turn = [this](const TurnRecord& turn, const EpisodeRecord& episode) {
      if (options_.json) Print(stdout, TrialLines(turn, episode) + ToLine(TurnEvent(turn, episode)));
    };
    hooks.on_episode = [this](const EpisodeRecord& episode) {
      progress_->Line(EpisodeLine(episode));
      if (options_.json) Print(stdout, ToLine(EpisodeEvent(episode)));
    };
    hooks.on_fault = [this](const EpisodeSpec& spec, const std::string& error, bool parked) {
      progress_->Line(fmt::format("{} {} episode {}: {}: {}", spec.problem, spec.policy, spec.number,
                                  parked ? "parked" : "void turn, will be made again", error));
      if (options_.json) Print(stdout, ToLine(FaultEvent(spec, error, parked)));
    };
    hooks.on_progress = [this, &rollout](const RolloutStatus& status) {
      ShowProgress(status, rollout.budget);
    };
    return hooks;
  }

  void ShowProgress(const RolloutStatus& status, const Budget& budget) {
    const std::string text = ProgressText(status, totals_, budget);
    progress_->Status(text);
    if (Clock::now() - logged_ < kLogEvery) return;
    logged_ = Clock::now();
    if (!progress_->live()) progress_->Line(text);
    if (options_.json) Print(stdout, ToLine(ProgressEvent(status, totals_, budget)));
  }

  void Report(const RolloutEnd& end, bool interrupted) {
    const auto results = queue_.Results(run_);
    const auto parked = queue_.Parked(run_);
    if (options_.json) {
      for (const ProblemResult& result : results) Print(stdout, ToLine(ResultEvent(result)));
      Print(stdout, ToLine({{"event", "collection"},
                            {"run", run_},
                            {"complete", end.complete},
                            {"interrupted", interrupted},
                            {"out_of", end.out_of.empty() ? Json() : Json(end.out_of)},
                            {"left_to", end.left_to},
                            {"parked", parked.size()},
                            {"database", store_.path().string()}}));
    }
    Print(text_out_, EndText(results, parked, end) + fmt::format("run       {} (kevin report {} --db {})\n",
                                                                 run_, run_, store_.path().string()));
    if (options_.report && end.complete) {
      Print(text_out_, "\n");
      ReportRun(run_, options_.database, options_.json);
    }
  }

  const CollectOptions& options_;
  std::FILE* const text_out_;
  const bool joins_;
  CollectionSpec spec_;
  std::unique_ptr<Memory> memory_;
  Store store_;
  WorkQueue queue_;
  std::map<std::string, Problem> problems_;  // by content hash
  std::vector<LeftOut> left_out_;
  std::optional<CollectPolicies> policies_;
  std::vector<std::string> devices_;
  std::string run_;
  bool resumed_ = false;
  CollectTotals totals_;
  Progress* progress_ = nullptr;
  Clock::time_point logged_ = Clock::now();
};

int Collect(CollectOptions options) {
  options.rollout.budget = BudgetFrom(options.budget, options.model);
  std::string& memory = options.spec.memory;
  if (!memory.empty() && memory.find("://") == std::string::npos)
    memory = std::filesystem::absolute(memory).lexically_normal().string();
  return Collection(options).Go();
}

void AddCommand(CLI::App& app, Action* action, const std::string& name, const std::string& what,
                const CollectOptions& defaults) {
  auto options = std::make_shared<CollectOptions>(defaults);
  options->command = name;
  CLI::App* command = app.add_subcommand(name, what);
  AddCollectOptions(command, options.get());
  command->callback([options, action] { *action = [options] { return Collect(*options); }; });
}

}  // namespace

void AddCollectCommand(CLI::App& app, Action* action) {
  CollectOptions defaults;
  defaults.spec.episodes = 1;
  AddCommand(app, action, "collect", "Many episodes, unattended; continues where it was stopped", defaults);
}

void AddEvalCommand(CLI::App& app, Action* action) {
  CollectOptions defaults;
  defaults.suite = "core";
  defaults.spec.episodes = 4;
  defaults.report = true;
  AddCommand(app, action, "eval", "Judge a policy on a list of problems", defaults);
}

}  // namespace kevin
