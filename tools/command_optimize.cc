#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>

#include "agent/episode.h"
#include "agent/events.h"
#include "agent/feedback.h"
#include "agent/machine.h"
#include "agent/terminal.h"
#include "agent/text.h"
#include "env/error.h"
#include "env/knobs/tune.h"
#include "env/problem/precision.h"
#include "env/process/files.h"
#include "env/process/machine.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/device_options.h"
#include "tools/export/torch_package.h"
#include "tools/importer.h"
#include "tools/optimize_options.h"
#include "tools/optimize_proof.h"
#include "tools/policies.h"
#include "tools/privacy.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOptimizeSize = "full";  // the shapes of the user's own inputs
constexpr int kEpisodesLookedAt = 10000;       // for one to continue
constexpr double kMemoryShare = 0.3;           // of the machine's, that one set of tensors may take

// The constructor finds the errors of the request before anything is started.
class Optimize {
 public:
  explicit Optimize(const OptimizeOptions& options)
      : options_(options),
        text_out_(options.json ? stderr : stdout),
        progress_(text_out_),
        request_(ImportOf(options)) {
    device_ = ChooseDevice(options.device, "");
  }

  int Go() {
    const InterruptGuard interrupt;
    stop_ = interrupt.flag();
    Import();
    if (options_.plan_only) return Plan();
    RequireAgreement({options_.policy}, options_.model, {&problem_}, options_.privacy);
    policy_ = MakePolicy(options_.policy, options_.model);
    RunTurns();
    if (*stop_) return Interrupted();
    return Finish();
  }

 private:
  // --- The problem ---

  void Import() {
    PythonImporter python([this](const std::string& phase) { progress_.Phase("import  " + phase); }, stop_,
                          options_.sandbox);
    python_ = python.python().python;
    std::unique_ptr<CpuEnvironment> admission;
    std::string why_not;
    try {
      progress_.Phase("starting the evaluator, testing the sandbox");
      admission = MakeCpuEnvironmentForTools(
          EnvironmentOptionsFor(options_.device.threads, options_.device.isolation));
    } catch (const Error& error) {
      if (error.code() != ExitCode::kMachine) throw;
      why_not = error.what();
    }
    Importer importer(&python, admission.get(), why_not);
    progress_.Phase("import");
    const ImportResult result = importer.Import(request_.target, request_.job, options_.limit_s);
    progress_.Phase("");
    if (!result.imported())
      throw Error(ExitCode::kBadRequest, fmt::format("{}: {}", options_.target, result.refusal),
                  result.next_step);
    problem_ = AsAsked(LoadProblemFile(request_.target.to), options_.device);
    if (!result.rejection.empty()) {
      throw Error(ExitCode::kBadRequest,
                  fmt::format("{}: incorrect answers pass on its inputs, so no kernel could be trusted: {}",
                              options_.target, result.rejection),
                  NextStepForInadmissible());
    }
    progress_.Line(fmt::format("{}  imported{}", request_.target.id,
                               result.size.empty()
                                   ? "; admission was not tried: " + result.not_tried
                                   : fmt::format(", admitted at {}: {} of {} decoys rejected", result.size,
                                                 result.decoys_rejected, result.decoys)));
    for (const std::string& note : result.notes) progress_.Line("    note: " + note);
    if (!problem_.module)
      throw Error(ExitCode::kBadRequest,
                  options_.target + ": a kernel cannot take its place, for the reason in the note above",
                  "kevin import FILE.py and kevin run find a kernel all the same");
    RequireMemory();
  }

  std::string NextStepForInadmissible() const {
    const std::string vary = "make get_inputs() draw values that vary (torch.randn)";
    const Precision precision = PrecisionOf(problem_);
    if (precision == Precision::kFp32) return vary;
    return fmt::format(
        "{}; a sum or mean of many values may keep too few digits in {}: --precision fp32, or return its terms",
        vary, PrecisionName(precision));
  }

  // Inputs, weights and outputs lie in several copies: the reference's, the candidate's, those of fresh calls.
  void RequireMemory() const {
    if (device_.starts_with("cuda") || device_ == "auto") return;
    double bytes = 0;
    const SizedProblem sized = AtSize(problem_, kOptimizeSize);
    for (const ConcreteTensor& t : sized.inputs) bytes += static_cast<double>(t.bytes);
    for (const ConcreteTensor& t : sized.outputs) bytes += static_cast<double>(t.bytes);
    const double memory = static_cast<double>(ReadMachine().memory_mb) * (1 << 20);
    if (memory == 0 || bytes < kMemoryShare * memory) return;
    throw Error(
        ExitCode::kMachine,
        fmt::format(
            "{}: its tensors take {:.1f} GB, and this machine has {:.1f} GB; kernels are tried with several "
            "copies of them",
            options_.target, bytes / 1e9, memory / 1e9),
        "give smaller inputs or weights, or use a larger machine");
  }

  // What kernels are made for: the shapes of the user's own inputs, or those of a size that varies.
  std::string Size() const { return problem_.shape_sets.contains(kDynamicSet) ? kDynamicSet : kOptimizeSize; }

  // --- The plan ---

  int Plan() {
    const std::string kind = KindOnDevice(device_).empty() ? "cuda" : KindOnDevice(device_);
    const SizedProblem sized = AtSize(problem_, kOptimizeSize);
    std::string text =
        fmt::format("problem    {}: {}\n", request_.target.id, fmt::join(problem_.families, ", "));
    for (const ConcreteTensor& t : sized.inputs)
      text += fmt::format("{:<10} {} {} [{}]\n", t.spec.is_param ? "parameter" : "input", t.spec.name,
                          DTypeName(t.spec.dtype), fmt::join(t.shape, ", "));
    for (const ConcreteTensor& t : sized.outputs)
      text += fmt::format("output     {} {} [{}]\n", t.spec.name, DTypeName(t.spec.dtype),
                          fmt::join(t.shape, ", "));
    if (Size() != kOptimizeSize) {
      for (const WeightedShape& shape : ShapesOf(problem_, Size()))
        text += fmt::format("shape      {}\n", ShapeName(shape.size, problem_.sizes.at(shape.size)));
    }
    text += fmt::format("work       {:.3g} GFLOP, {:.3g} MB of memory traffic at least\n", sized.flops / 1e9,
                        sized.bytes / 1e6);
    text +=
        fmt::format("would try  {} of kernels in {} by policy {} on {}\n", Counted(options_.turns, "turn"),
                    LanguageOf(kind), options_.policy, device_ == "auto" ? "the first usable GPU" : device_);
    text += fmt::format("signature  {}\n", LaunchSignature(problem_, kind));
    Print(text_out_, text);
    Report({}, "--plan-only", "");
    return static_cast<int>(ExitCode::kDone);
  }

  // --- The episode ---

  // The latest episode that asked the same, if there is one.
  std::optional<EpisodeRecord> Earlier(const Workload& workload, const std::string& policy,
                                       const std::string& kind) {
    for (const EpisodeRecord& episode : store_->ListEpisodes(kEpisodesLookedAt)) {
      if (episode.problem_hash == problem_.content_hash && episode.policy == policy && episode.kind == kind &&
          episode.workload == workload && episode.seed == options_.seed)
        return episode;
    }
    return std::nullopt;
  }

  EpisodeOptions OptionsFor(const Workload& workload, const std::string& kind) {
    EpisodeOptions episode;
    episode.turns = options_.turns;
    if (policy_.turns) episode.turns = std::min(episode.turns, *policy_.turns);
    if (const auto earlier = Earlier(workload, policy_.policy->Name(), kind)) {
      const int made = earlier->turns;
      if (made >= episode.turns && earlier->state == EpisodeState::kDone) {
        episode.turns = 0;
        episode.continue_episode = earlier->id;
        return episode;
      }
      progress_.Line(fmt::format("continues episode {} after {}", earlier->id, Counted(made, "turn")));
      const bool is_done = earlier->state == EpisodeState::kDone;
      episode = OptionsToContinue(*earlier, is_done ? options_.turns - made : std::max(options_.turns, made));
      episode.finish = !is_done;  // broken off
    }
    episode.seed = options_.seed;
    episode.workload = workload;
    episode.sampling = policy_.sampling;
    episode.prompt_token_budget = policy_.prompt_token_budget;
    episode.output = options_.folder;
    const MachineFacts machine = ReadMachine();
    episode.machine = MachineLine(machine);
    episode.threads = options_.device.threads > 0 ? options_.device.threads : machine.cores;
    episode.tune = options_.tune.value_or(DefaultSettings(kind));
    return episode;
  }

  void RunTurns() {
    progress_.Phase("starting the evaluator, testing the sandbox");
    EnvironmentOptions environment_options = EnvironmentOptionsFor(options_.device, device_);
    environment_options.measure_ceilings = true;
    const auto environment = MakeEnvironment(environment_options);
    const std::string kind = environment->Facts().kinds.front();
    RequireKind(environment->Facts(), options_.device, kind);
    device_ =
        kind == "cpp" ? "cpu" : environment->Facts().device.substr(0, environment->Facts().device.find(": "));
    store_.emplace(Store::Open(options_.database, OpenMode::kCreate));
    EpisodeOptions episode = OptionsFor(
        WorkloadFor(options_.device, Size(), "default", RulesFor(options_.device.rules, kind, {&problem_})),
        kind);
    if (episode.turns == 0) {
      episode_ = store_->FindEpisode(episode.continue_episode);
      progress_.Line(fmt::format("episode {} is complete", episode_.id));
      return;
    }
    RequirePolicyFor(
        problem_, *policy_.policy, episode, kind,
        [&](const Problem& problem, const std::string& size) { return environment->Graph(problem, size); });
    episode.run = store_->BeginRun({{}, CommandLine(), KEVIN_VERSION, MachineJson(ReadMachine()), {}, {}});
    progress_.Phase("");
    progress_.Line(fmt::format("{}, policy {}; {}; isolation {}", request_.target.id, policy_.policy->Name(),
                               environment->Facts().device, environment->Facts().isolation));
    episode_ = RunEpisode(problem_, *policy_.policy, *environment, *store_, episode, Hooks(), stop_);
    store_->FinishRun(episode.run);
    progress_.Phase("");
  }

  EpisodeHooks Hooks() {
    EpisodeHooks hooks;
    hooks.on_phase = [this](int turn, const std::string& phase) {
      progress_.Phase(fmt::format("turn {}  {}", turn, phase));
    };
    hooks.on_turn = [this](const TurnRecord& turn, const EpisodeRecord& episode) {
      const EvaluationRecord& e = turn.evaluation;
      const std::string speedup =
          e.speedup ? " " + RatioText(e.speedup->value, e.speedup->low, e.speedup->high) : "";
      progress_.Phase("");
      progress_.Line(fmt::format("turn {}  {}{}{}  {:.1f} s", turn.turn, e.outcome, speedup,
                                 e.cached_from.empty() ? "" : " (cached)", turn.seconds));
      if (options_.json) Print(stdout, TrialLines(turn, episode) + ToLine(TurnEvent(turn, episode)));
    };
    return hooks;
  }

  int Interrupted() {
    Print(text_out_, fmt::format("interrupted: {} in {}; the same command goes on\n",
                                 Counted(episode_.turns, "turn"), options_.database));
    Report({}, "interrupted", "");
    return static_cast<int>(ExitCode::kInterrupted);
  }

  // --- The result ---

  int Finish() {
    const std::string why_not = NotFaster();
    if (!why_not.empty()) return NothingWritten({}, why_not);
    const Proof proof = WriteAndProve();
    if (!proof.failure.empty()) {
      Report({}, "the exported file is no replacement: " + proof.failure, "");
      throw Error(ExitCode::kBroken,
                  "the exported file is no replacement, nothing was written: " + proof.failure,
                  fmt::format("kevin export {} --best --as torch-package -o FOLDER writes the kernel alone",
                              episode_.id));
    }
    if (!IsFasterInPython(proof)) {
      return NothingWritten(
          proof, fmt::format("the kernel alone is faster, but a call in Python is not{}: {} of eager",
                             proof.speedup.at(2) < 1 ? "" : " certain to be", Ratio3(proof.speedup)));
    }
    Print(text_out_, written_);
    std::string text =
        fmt::format("proof      {}; outputs differ by {:.2g} of their magnitude at most ({:.2g} allowed){}\n",
                    fmt::join(proof.checks, ", "), proof.max_error, proof.tolerance,
                    proof.rounded ? ", where they are not nearer to the exact ones than the original's" : "");
    text += fmt::format("in Python  {:.1f} us, eager {:.1f} us: {}\n", proof.kernel_us, proof.eager_us,
                        Ratio3(proof.speedup));
    text +=
        fmt::format("gained     {} over eager, {}: {}\n",
                    RatioText(*episode_.best_speedup, episode_.best_speedup_low.value_or(0),
                              episode_.best_speedup_high.value_or(0)),
                    proof.compile_speedup.empty() ? "torch.compile not measured (" + proof.no_compile + ")"
                                                  : Ratio3(proof.compile_speedup) + " over torch.compile",
                    options_.output);
    Print(text_out_, text);
    Report(proof, "", options_.output);
    return static_cast<int>(ExitCode::kDone);
  }

  static std::string Ratio3(const std::vector<double>& r) { return RatioText(r.at(0), r.at(1), r.at(2)); }

  std::string NotFaster() const {
    if (!episode_.best_turn) return "none of the kernels was correct";
    if (!episode_.best_speedup) return "no kernel was confirmed";
    if (episode_.best_speedup_low.value_or(0) > 1) return "";
    return fmt::format("the best kernel is {} of eager when measured again",
                       RatioText(*episode_.best_speedup, episode_.best_speedup_low.value_or(0),
                                 episode_.best_speedup_high.value_or(0)));
  }

  int NothingWritten(const Proof& proof, const std::string& why) {
    Print(text_out_,
          fmt::format("nothing was gained and nothing written: {}\n{}; episode {} (kevin show {})\n", why,
                      episode_.state_reason.empty()
                          ? fmt::format("more turns may help: --turns {}", 2 * options_.turns)
                          : episode_.state_reason,
                      episode_.id, episode_.id));
    Report(proof, why, "");
    return static_cast<int>(ExitCode::kDone);
  }

  // Proves the files in a folder beside their place, then moves them.
  Proof WriteAndProve() {
    const auto turn = store_->LoadTurn(episode_.id, *episode_.best_turn);
    if (!turn)
      throw Error(ExitCode::kBroken, "the database has lost the best turn of episode " + episode_.id);
    const fs::path output = options_.output;
    PackageRequest request{
        &problem_,      Size(), turn->evaluation.kind, turn->evaluation.source, output.stem().string(),
        Heading(*turn), false};
    const Problem with_source = WithSource();
    request.problem = &with_source;
    const TorchPackage package = WriteTorchPackage(request);
    const bool gpu = IsForGpu(turn->evaluation.kind);
    Proof proof;
    {
      const WorkFolder work(output.has_parent_path() ? output.parent_path() : fs::path("."),
                            ".kevin-optimize-");
      const fs::path trial = fs::absolute(work.path() / output.filename());
      WritePackageFiles(package, trial, gpu, false);
      ProofRequest ask;
      ask.python = python_, ask.output = trial, ask.import = request_.job;
      ask.precision = PrecisionName(PrecisionOf(problem_)), ask.device = device_;
      ask.lock = LockName();
      ask.compile = !options_.no_compile;
      ask.on_phase = [this](const std::string& phase) { progress_.Phase("proof  " + phase); };
      ask.stop = stop_;
      proof = ProveExport(ask);
      progress_.Phase("");
    }
    if (!proof.failure.empty() || !IsFasterInPython(proof)) return proof;
    written_ = WritePackageFiles(package, output, gpu, options_.force);
    return proof;
  }

  std::string LockName() const { return LockNameOf(device_); }

  // --no-source took it out for the policy alone.
  Problem WithSource() const { return AsAsked(LoadProblemFile(request_.target.to), options_.device); }

  std::vector<std::string> Heading(const TurnRecord& turn) const {
    return {fmt::format("A drop-in for {} of {}.", problem_.module->class_name,
                        fs::path(request_.job.file).filename().string()),
            fmt::format("Speed-up: {} against eager, 99 % interval, measured again after it had won",
                        RatioText(*episode_.best_speedup, episode_.best_speedup_low.value_or(0),
                                  episode_.best_speedup_high.value_or(0))),
            fmt::format("Episode:  {}, turn {}, policy {}", episode_.id, turn.turn, episode_.policy),
            fmt::format("Device:   {}", episode_.device)};
  }

  void Report(const Proof& proof, const std::string& reason, const std::string& output) const {
    if (!options_.json) return;
    const auto or_null = [](const std::optional<double>& value) { return value ? Json(*value) : Json(); };
    const auto text = [](const std::string& value) { return value.empty() ? Json() : Json(value); };
    const auto at = [](const std::vector<double>& ratio, size_t i) {
      return ratio.empty() ? Json() : Json(ratio.at(i));
    };
    const Json event = {{"event", "optimize"},
                        {"problem", request_.target.id},
                        {"episode", text(episode_.id)},
                        {"speedup", or_null(episode_.best_speedup)},
                        {"speedup_low", or_null(episode_.best_speedup_low)},
                        {"speedup_high", or_null(episode_.best_speedup_high)},
                        {"compile_speedup", at(proof.compile_speedup, 0)},
                        {"compile_speedup_low", at(proof.compile_speedup, 1)},
                        {"compile_speedup_high", at(proof.compile_speedup, 2)},
                        {"call_speedup", at(proof.speedup, 0)},
                        {"output", text(output)},
                        {"reason", text(reason)}};
    Print(stdout, ToLine(event));
  }

  const OptimizeOptions& options_;
  std::FILE* const text_out_;
  Progress progress_;
  const OptimizeImport request_;
  std::string device_, written_;
  fs::path python_;
  Problem problem_;
  ChosenPolicy policy_;
  std::optional<Store> store_;
  EpisodeRecord episode_;
  const std::atomic<bool>* stop_ = nullptr;
};

}  // namespace

void AddOptimizeCommand(CLI::App& app, Action* action) {
  auto options = std::make_shared<OptimizeOptions>();
  CLI::App* command =
      app.add_subcommand("optimize", "From your own PyTorch module to a faster drop-in, in one command");
  AddOptimizeOptions(command, options.get());
  command->callback([options, action] { *action = [options] { return Optimize(*options).Go(); }; });
}

}  // namespace kevin
