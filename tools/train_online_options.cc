// The options of `kevin train` about turns that the model makes itself, and the judges of their kernels.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "agent/conversation.h"
#include "env/device_pool.h"
#include "env/error.h"
#include "env/problem/problem.h"
#include "env/process/runner_protocol.h"
#include "tools/command_line.h"
#include "tools/device_options.h"
#include "tools/train_options.h"

namespace kevin {

namespace {

constexpr const char *kOnlineGroup = "Online: turns made by the model as it is",
                     *kAsked = "How it is sampled", *kJudged = "How its kernels are judged",
                     *kEvaluated = "Evaluation on the way";

void AddEvaluation(CLI::App* command, OnlineSettings* o) {
  const auto add = [&](const char* flag, auto& value, const char* help) {
    return command->add_option(flag, value, help)->group(kEvaluated);
  };
  add("--eval-suite", o->eval_suite,
      "Held-out problems; the best checkpoint by them is kept in OUT/best. An error if a training problem is among "
      "them");
  add("--eval-every", o->eval_every, "Steps between evaluations; 0: before the first and after the last")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  add("--eval-samples", o->eval_samples, "Episodes of each problem")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  add("--eval-turns", o->eval_turns, "Turns of each episode")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  add("--best-by", o->best_by, "The metric of kevin report that chooses")->capture_default_str();
  add("--test-suite", o->test_suite,
      "Problems that the best checkpoint (without --eval-suite the last) is tried on once, at the end");
}

}  // namespace

namespace {

std::string WhyNoSchedule(const std::string& text) {
  try {
    const LengthSchedule is_one(text);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

void AddOnlineSettings(CLI::App* command, OnlineSettings* o) {
  const auto add = [&](const char* flag, auto& value, const char* help, const char* group) {
    return command->add_option(flag, value, help)->group(group);
  };
  command->add_flag("--online", o->online, "Each step makes its own turns, and keeps them in the database")
      ->group(kOnlineGroup);
  add("--suite", o->suite, "The problems to learn on, as kevin collect takes them", kOnlineGroup);
  add("--problems-per-step", o->problems_per_step, "Default: --batch, else 8; sft and tpt: all of --suite",
      kOnlineGroup)
      ->check(CLI::PositiveNumber);
  add("--samples", o->samples, "Episodes of each problem", kOnlineGroup)
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  add("--turns", o->turns, "Turns of each episode", kOnlineGroup)
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  add("--refill", o->refills,
      "Rounds in which tasks whose turns do not differ are replaced by other problems (dynamic sampling; default 0, "
      "dapo 10)",
      kOnlineGroup)
      ->check(CLI::Range(0, 100));
  command
      ->add_flag("--curriculum", o->curriculum,
                 "Draw problems by their solve rates so far: those solved half of the time come most often")
      ->group(kOnlineGroup);
  add("--staleness", o->staleness,
      "The most steps by which the weights that make turns may be older than those in training", kOnlineGroup)
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  add("--temperature", o->temperature, "", kAsked)->check(CLI::Range(0.01, 2.0))->capture_default_str();
  add("--max-tokens", o->max_tokens, "The most tokens of an answer (default 16384, or half the window)",
      kAsked)
      ->check(CLI::PositiveNumber);
  command
      ->add_option_function<std::string>(
          "--max-tokens-schedule", [o](const std::string& text) { o->schedule = LengthSchedule(text); },
          "The same, by step: 1:16384,31:22528; evaluations take the largest")
      ->check(WhyNoSchedule)
      ->group(kAsked)
      ->excludes("--max-tokens");
  AddPromptsOption(command, &o->prompts)->group(kAsked);
  AddDiagnoseOption(command, &o->diagnose, "turns that lead or may, but the last of an episode")
      ->group(kAsked);
  add("--context", o->context, "Tokens of prompt and answer (default: the model's)", kAsked)
      ->check(CLI::PositiveNumber);
  add("--place", o->place,
      "GPUs of the roles: trainer=0-3,sampler=4-6,judge=7 (default: each rank has one for all)",
      kOnlineGroup);
  add("--sampler-device", o->sampler_device, "A second copy of the model there samples: cpu, cuda:1", kAsked);
  add("--sampler", o->sampler,
      "openai:MODEL@URL: a server makes the turns and takes the weights after each step: SGLang, or vLLM on OUT/sampler",
      kAsked)
      ->excludes("--sampler-device");
  add("--sampler-tokens", o->sampler_tokens, "That the cache of keys and values holds", kAsked)
      ->check(CLI::PositiveNumber);
  add("--judge", o->judges, "auto, cpu, cuda:N, or all; repeatable", kJudged)->allow_extra_args(false);
  add("--size", o->size, "small or full (default: small on a CPU, full on a GPU)", kJudged);
  command->add_flag("--unsafe-python", o->unsafe_python, kUnsafePythonHelp)->group(kJudged);
  add("--threads", o->threads, "On a CPU: of kernel and reference; 0: all cores", kJudged)
      ->check(CLI::NonNegativeNumber);
  add("--isolation", o->isolation, "full, reduced", kJudged)
      ->check(CLI::IsMember({"full", "reduced"}))
      ->capture_default_str();
  add("--parallel", o->parallel, "Episodes at once (default 64 on a GPU, 8 on a CPU)", kJudged)
      ->check(CLI::Range(1, 4096));
  AddEvaluation(command, o);
}

void CheckOnlineSettings(const OnlineSettings& o) {
  if (o.online && o.suite.empty())
    throw Error(ExitCode::kBadRequest, "--online needs to know what to learn on",
                "give --suite level1; kevin problems lists what there is");
  if (!o.online && !o.suite.empty())
    throw Error(ExitCode::kBadRequest,
                "--suite is for --online; records are chosen with --db and --problems");
  if (!o.online && (o.refills >= 0 || o.curriculum))
    throw Error(ExitCode::kBadRequest, "--refill and --curriculum are for --online");
  if (!o.sampler.empty() && !o.online) throw Error(ExitCode::kBadRequest, "--sampler is for --online");
  if (!o.sampler.empty() && !o.sampler.starts_with("openai:"))
    throw Error(ExitCode::kBadRequest, "--sampler " + o.sampler + ": not a server that takes new weights",
                "write openai:MODEL@http://127.0.0.1:30000/v1");
  if (!o.sampler.empty() && o.staleness > 0)
    throw Error(ExitCode::kBadRequest,
                "--sampler takes new weights between steps, so its turns cannot be made ahead",
                "leave out --staleness");
  const OnlineSettings none;
  if (!o.Samples() && (o.prompts != none.prompts || o.diagnose != none.diagnose))
    throw Error(ExitCode::kBadRequest, "--prompts and --diagnose are for turns that the model makes itself",
                "add --online, --eval-suite or --test-suite, or leave them out");
  if (!o.online && o.staleness > 0) throw Error(ExitCode::kBadRequest, "--staleness is for --online");
  if (o.eval_every > 0 && o.eval_suite.empty())
    throw Error(ExitCode::kBadRequest, "--eval-every needs --eval-suite");
}

namespace {

// Beside sessions: contexts of the evaluator and of its runners.
constexpr int64_t kContextBytes = int64_t{3} << 30;

DeviceOptions JudgeOptions(const OnlineSettings& settings) {
  DeviceOptions options;
  options.isolation = settings.isolation, options.threads = settings.threads;
  options.unsafe_python = settings.unsafe_python;
  return options;
}

std::vector<std::string> JudgeDevices(const OnlineSettings& settings, const GpuFinder& find_gpus = FindGpus) {
  return ChooseDevices(settings.judges, JudgeOptions(settings), settings.kind, find_gpus);
}

}  // namespace

bool JudgesOnGpu(const OnlineSettings& settings, const std::string& device, const GpuFinder& find_gpus) {
  if (!device.starts_with("cuda")) return false;
  std::vector<std::string> judges = JudgeDevices(settings, find_gpus);
  // Without --kind the environment chooses the first usable GPU.
  if (std::ranges::find(judges, "auto") != judges.end())
    judges.push_back(ChooseDevices({}, JudgeOptions(settings), "cuda", find_gpus).front());
  return std::ranges::find(judges, device) != judges.end();
}

int64_t JudgeBytes(const OnlineSettings& settings, const TrainSuites& suites) {
  const ProblemSet problems;
  int64_t largest = 0;
  for (const auto* ids : {&suites.learnt, &suites.dev, &suites.test}) {
    for (const std::string& id : *ids) {
      const Problem problem = problems.Find(id);
      for (const WeightedShape& shape : ShapesOf(problem, settings.size.empty() ? "full" : settings.size))
        largest = std::max(largest, LeastSessionBytesOnGpu(AtSize(problem, shape.size)));
    }
  }
  return largest + kContextBytes;
}

std::unique_ptr<Environment> StartJudges(const OnlineSettings& settings) {
  const DeviceOptions options = JudgeOptions(settings);
  std::vector<std::unique_ptr<Environment>> environments;
  for (const std::string& device : JudgeDevices(settings)) {
    EnvironmentOptions environment = EnvironmentOptionsFor(options, device);
    environment.measure_ceilings = true;
    environments.push_back(MakeEnvironment(environment));
  }
  std::unique_ptr<Environment> judges = environments.size() == 1
                                            ? std::move(environments.front())
                                            : std::make_unique<DevicePool>(std::move(environments));
  if (!settings.kind.empty()) RequireKind(judges->Facts(), options, settings.kind);
  return judges;
}

}  // namespace kevin
