#include "tools/online_options.h"

#include <CLI/CLI.hpp>

#include "env/device_pool.h"
#include "env/error.h"
#include "tools/device_options.h"

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
      "Held-out problems; the best checkpoint by them is kept in OUT/best. An error if one is learnt from");
  add("--eval-every", o->eval_every, "Steps between evaluations; 0: before the first and after the last")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  add("--eval-samples", o->eval_samples, "Episodes of each problem")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  add("--eval-turns", o->eval_turns, "Of each episode")->check(CLI::Range(1, 10000))->capture_default_str();
  add("--best-by", o->best_by, "The metric of kevin report that chooses")->capture_default_str();
  add("--test-suite", o->test_suite,
      "Problems that the best checkpoint (without --eval-suite the last) is tried on once, at the end");
}

}  // namespace

void AddOnlineSettings(CLI::App* command, OnlineSettings* o) {
  const auto add = [&](const char* flag, auto& value, const char* help, const char* group) {
    return command->add_option(flag, value, help)->group(group);
  };
  command->add_flag("--online", o->online, "Each step makes its own turns, and keeps them in the database")
      ->group(kOnlineGroup);
  add("--suite", o->suite, "The problems to learn on, as kevin collect takes them", kOnlineGroup);
  add("--problems-per-step", o->problems_per_step, "Default: --batch, else 8", kOnlineGroup)
      ->check(CLI::PositiveNumber);
  add("--samples", o->samples, "Episodes of each problem", kOnlineGroup)
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  add("--turns", o->turns, "Of each episode", kOnlineGroup)
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  add("--staleness", o->staleness,
      "So many steps may turns be made ahead, by older weights, while the model learns", kOnlineGroup)
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  add("--temperature", o->temperature, "", kAsked)->check(CLI::Range(0.01, 2.0))->capture_default_str();
  add("--max-tokens", o->max_tokens, "Of an answer (default 16384, or half the window)", kAsked)
      ->check(CLI::PositiveNumber);
  add("--context", o->context, "Tokens of prompt and answer (default: the model's)", kAsked)
      ->check(CLI::PositiveNumber);
  add("--sampler-device", o->sampler_device, "A second copy of the model there samples: cpu, cuda:1", kAsked);
  add("--sampler-tokens", o->sampler_tokens, "That the cache of keys and values holds", kAsked)
      ->check(CLI::PositiveNumber);
  add("--judge", o->judges, "auto, cpu, cuda:N, or all; repeatable", kJudged)->allow_extra_args(false);
  add("--size", o->size, "small or full (default: small on a CPU, full on a GPU)", kJudged);
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
  if (!o.online && o.staleness > 0) throw Error(ExitCode::kBadRequest, "--staleness is for --online");
  if (o.eval_every > 0 && o.eval_suite.empty())
    throw Error(ExitCode::kBadRequest, "--eval-every needs --eval-suite");
}

std::unique_ptr<Environment> StartJudges(const OnlineSettings& settings) {
  DeviceOptions options;
  options.isolation = settings.isolation, options.threads = settings.threads;
  std::vector<std::unique_ptr<Environment>> environments;
  for (const std::string& device : ChooseDevices(settings.judges, options, ""))
    environments.push_back(MakeEnvironment(EnvironmentOptionsFor(options, device)));
  if (environments.size() == 1) return std::move(environments.front());
  return std::make_unique<DevicePool>(std::move(environments));
}

}  // namespace kevin
