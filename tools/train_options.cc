#include "tools/train_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "agent/conversation.h"
#include "env/device_pool.h"
#include "env/error.h"
#include "env/problem/problem.h"
#include "env/process/runner_protocol.h"
#include "tools/command_line.h"
#include "tools/device_options.h"
#include "tools/record_options.h"

namespace kevin {
namespace fs = std::filesystem;

void AddTrainRequest(CLI::App* command, TrainRequest* o) {
  command->add_option("--model", o->model, "The model that is trained: a Hugging Face folder")->required();
  command->add_option("--out", o->output, "Folder for checkpoints and the trained model");
  command->add_flag(
      "--dry-run", o->dry_run,
      "Print what would be learnt from, the histogram of advantages and the first batch; train nothing");
  command->add_option("--db", o->databases, "A database; may be repeated; --online: where turns are kept")
      ->allow_extra_args(false)
      ->capture_default_str();
  command->add_option("--run", o->runs, "Only this run (may be repeated): id, unique beginning, or latest")
      ->allow_extra_args(false);
  command->add_option("--problems", o->problems, "Only problems whose ids begin so: level1/");
  command->add_option("--without", o->without, "A suite whose problems are not learnt from");
  command->add_option("--held-out", o->held_out,
                      "The suite of the evaluation; an error if one of it is learnt from");
  command->add_option("--steps", o->steps, "Batches (default: one epoch of the records; --online: 40)")
      ->check(CLI::PositiveNumber);
  command->add_option("--epochs", o->epochs, "Instead of --steps: passes over the records (default: 1)")
      ->check(CLI::PositiveNumber)
      ->excludes("--steps");
  command->add_option("--seed", o->seed, "The seed of the order of samples and of adapters")
      ->check(WhyNotWhole)
      ->capture_default_str();
  command->add_flag("--resume", o->resume, "Go on from the newest checkpoint in --out");
  command
      ->add_option("--min-speedup", o->units.min_speedup, "sft, tpt: only correct kernels at least this fast")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--keep-flat", o->units.keep_flat, "Keep tasks whose turns do not differ");
  command->add_flag("--keep-cut-off", o->keep_cut_off, "Also train replies that the length limit cut off");
  command->add_option("--max-sample-tokens", o->batches.max_sample_tokens,
                      "Longer turns are left out (default: the model's context)");
  command
      ->add_option("--opening", o->batches.opening,
                   "The first word of normal reasoning; a warning follows when it begins otherwise")
      ->capture_default_str();
  command
      ->add_flag(
          "--recompute,!--no-recompute", o->recompute,
          "Recompute activations in the backward pass: less memory, slower (default: where they do not fit)")
      ->group("Model and memory");
  command
      ->add_flag("--shard", o->shard,
                 "Split the weights too over the ranks: for models that do not fit one GPU")
      ->group("Model and memory");
  command->add_flag("--optimizer-on-cpu", o->optimizer_on_cpu, "Keep the optimiser in main memory")
      ->group("Model and memory");
  command->add_flag("--from-base", o->from_base, "Each step begins with --model's weights again (tpt)");
  AddTrainSettings(command, &o->settings);
  AddOnlineSettings(command, &o->sampling);
  AddFilterOptions(command, &o->filter);
  AddAcceptOldVerdicts(command, &o->accept_old_verdicts);
  command->add_flag("--json", o->json, "One JSON object a step");
}

LearnRequest RecordsFrom(const TrainRequest& request, const TrainSuites& suites, const Algorithm& algorithm) {
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
  wanted.filter = FilterFrom(request.filter);
  wanted.scheme = algorithm.scheme;
  wanted.accept_old_verdicts = request.accept_old_verdicts;
  if (algorithm.material == Material::kAnswers) wanted.leave_out = LeaveOut::kTurns;
  return wanted;
}

void CheckOutput(const TrainRequest& request) {
  if (request.dry_run) return;
  if (request.output.empty())
    throw Error(ExitCode::kBadRequest, "there is no folder for the trained model",
                "give --out FOLDER, or --dry-run");
  if (request.resume || !(fs::exists(fs::path(request.output) / "checkpoints") ||
                          fs::exists(fs::path(request.output) / "run.json")))
    return;
  throw Error(ExitCode::kBadRequest, request.output + " holds a training run already",
              "continue it (--resume), or choose another --out");
}

// The settings of an algorithm that depend on the source of its turns.
Algorithm AlgorithmOf(TrainRequest* request) {
  CheckOnlineSettings(request->sampling);
  Algorithm algorithm = AlgorithmFrom(request->settings);
  OnlineSettings& sampling = request->sampling;
  sampling.kind = request->filter.filter.kind;
  if (sampling.prompts == kKernelBenchPrompts && sampling.kind != "modelnew")
    throw Error(ExitCode::kBadRequest, "--prompts kernelbench asks for ModelNew", "add --kind modelnew");
  if (!sampling.online) return algorithm;
  if (sampling.refills < 0) sampling.refills = algorithm.refills;
  if (!sampling.sampler.empty() && algorithm.train.lora.rank > 0)
    throw Error(ExitCode::kBadRequest, "--sampler gives a server whole weights, and --lora trains adapters",
                "leave out one of them");
  // A round of imitation harvests from all problems unless fewer are asked for.
  const bool is_round = algorithm.material == Material::kAnswers && request->settings.batch == 0;
  if (sampling.problems_per_step == 0 && is_round)
    sampling.problems_per_step = static_cast<int>(TrainSuites(sampling, request->without).learnt.size());
  if (sampling.problems_per_step == 0) sampling.problems_per_step = algorithm.units_per_step;
  // A round of imitation is one epoch over the chosen turns, batch after batch.
  if (algorithm.material == Material::kAnswers && !request->settings.Has("--updates")) {
    const int answers =
        sampling.problems_per_step * (algorithm.picked == Picked::kBest ? 1 : sampling.samples);
    algorithm.train.updates_per_step = (answers + algorithm.units_per_step - 1) / algorithm.units_per_step;
  }
  return algorithm;
}

// Sampling in bfloat16 and training in it differ by 0.01 to 0.03 a token, two different policies by more than this.
constexpr double kGapLimit = 0.2;

local::TrainOptions OptionsFrom(const TrainRequest& request, const Algorithm& algorithm) {
  local::TrainOptions options = algorithm.train;
  options.model = request.model, options.output = request.output;
  options.seed = request.seed, options.resume = request.resume;
  options.recompute = request.recompute.value_or(false),
  options.choose_recompute = !request.recompute.has_value();
  options.adam.on_cpu = request.optimizer_on_cpu;
  options.from_base = request.from_base, options.shard = request.shard;
  if (options.shard && options.lora.rank > 0)
    throw Error(ExitCode::kBadRequest,
                "--shard splits weights that are trained, and --lora trains none of them",
                "leave one of the two out");
  // Turns that are made ahead come from an earlier policy.
  if (!request.settings.Has("--gap-limit") && request.sampling.online && request.sampling.staleness == 0)
    options.gap_limit = kGapLimit;
  if (request.steps > 0) options.steps = request.steps;
  return options;
}

namespace {

constexpr double kAdapterRateFactor = 10;
constexpr const char *kLoss = "Loss", *kOptimizer = "Optimiser", *kMemory = "Model and memory",
                     *kRun = "Checkpoints";

std::vector<TrainSetting> AllSettings() {
  return {
      {"--surrogate", "surrogate", "clip, sequence-clip, cispo, reinforce, cross-entropy, preference", kLoss,
       ""},
      {"--clip-low", "clip_low", "The ratio stays above 1 minus this", kLoss, ""},
      {"--clip-high", "clip_high", "The ratio stays below 1 plus this", kLoss, ""},
      {"--dual-clip", "dual_clip", "Bound of the ratio for negative advantages; 0: none", kLoss, ""},
      {"--normaliser", "normaliser", "token-mean, sequence-mean, sequence-sum, constant", kLoss, ""},
      {"--constant-tokens", "constant_tokens", "Length that the constant normaliser divides by", kLoss, ""},
      {"--correction", "correction", "Between sampler and trainer: none, truncate, mask, sequence-mask",
       kLoss, ""},
      {"--correction-low", "correction_low", "The least weight that counts", kLoss, ""},
      {"--correction-high", "correction_high", "The largest weight", kLoss, ""},
      {"--gap-limit", "gap_limit",
       "The most by which log-probabilities of sampler and trainer may differ, mean a token; 0: any (default: 0.2 "
       "--online with --staleness 0, else 0)",
       kLoss, ""},
      {"--old-policy", "old_policy", "What ratios are taken against: trainer, sampler", kLoss, ""},
      {"--kl", "kl", "To the reference: none, k1, k2, k3", kLoss, ""},
      {"--kl-weight", "kl_weight", "Weight of the KL term", kLoss, ""},
      {"--reference", "reference", "Folder of the reference model (default: --model)", kLoss, ""},
      {"--entropy-weight", "entropy_weight", "Weight of the entropy bonus", kLoss, ""},
      {"--beta", "preference_beta", "Beta of the preference loss", kLoss, ""},
      {"--learning-rate", "learning_rate",
       "After the warm-up (default: the algorithm's; with --lora 10 times as much)", kOptimizer, ""},
      {"--schedule", "decay", "constant, cosine, linear", kOptimizer, ""},
      {"--warmup", "warmup", "Share of all updates", kOptimizer, ""},
      {"--final-fraction", "final_fraction", "The learning rate at the end, as a share of --learning-rate",
       kOptimizer, ""},
      {"--beta1", "beta1", "AdamW's", kOptimizer, ""},
      {"--beta2", "beta2", "AdamW's", kOptimizer, ""},
      {"--epsilon", "epsilon", "AdamW's", kOptimizer, ""},
      {"--weight-decay", "weight_decay", "Weight decay of matrices", kOptimizer, ""},
      {"--max-grad-norm", "max_grad_norm", "Longer gradients are shortened to it; 0: never", kOptimizer, ""},
      {"--updates", "updates_per_step", "Updates of the weights in each step", kOptimizer, ""},
      {"--device", "device", "auto (a GPU of its own for each rank, else the CPU), cpu, cuda, cuda:N",
       kMemory, ""},
      {"--dtype", "dtype", "float32, bfloat16 (default: as the model's folder says)", kMemory, ""},
      {"--lora", "lora_rank", "Train adapters of this rank instead of all weights", kMemory, ""},
      {"--lora-targets", "lora_targets",
       "Projections with adapters, by commas (default: q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj)",
       kMemory, ""},
      {"--lora-alpha", "lora_alpha", "The scale of adapters times their rank", kMemory, ""},
      {"--quantization", "quantization", "Of the frozen weights under adapters: none, int8, nf4, nf4-double",
       kMemory, ""},
      {"--micro-tokens", "micro_tokens", "Tokens in one forward pass", kMemory, ""},
      {"--logits-tokens", "logits_tokens", "Tokens whose logits exist at once", kMemory, ""},
      {"--checkpoint-every", "checkpoint_every", "Steps; 0: only at the end", kRun, ""},
      {"--keep", "keep", "Checkpoints to keep; the oldest are deleted", kRun, ""},
  };
}

// Numbers as numbers, everything else as text.
nlohmann::json ValueOf(const TrainSetting& setting, const nlohmann::json& current) {
  if (!current.is_number()) return setting.value;
  const nlohmann::json number = nlohmann::json::parse(setting.value, nullptr, false);
  const bool fits = number.is_number() && (current.is_number_float() || number.is_number_integer());
  if (fits && number.get<double>() >= 0)
    return current.is_number_float() ? nlohmann::json(number.get<double>()) : number;
  throw Error(ExitCode::kBadRequest, fmt::format("{} {}: not a valid number", setting.flag, setting.value));
}

std::string AlgorithmNames() {
  std::vector<std::string> names;
  for (const Algorithm& a : KnownAlgorithms()) names.push_back(a.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

Picked PickedFrom(const std::string& select) {
  return select == "all" ? Picked::kAll : select == "best" ? Picked::kBest : Picked::kCorrect;
}

}  // namespace

void AddTrainSettings(CLI::App* command, TrainSettings* s) {
  command->add_option("--algorithm", s->algorithm, AlgorithmNames())->capture_default_str();
  command->add_option("--batch", s->batch, "A step's tasks (rollouts), answers or pairs")
      ->check(CLI::PositiveNumber);
  command->add_option("--select", s->select, "sft: which turns are imitated")
      ->check(CLI::IsMember({"all", "correct", "best"}));
  s->scheme.scheme.clear();
  AddSchemeOptions(command, &s->scheme);
  s->settings = AllSettings();
  for (TrainSetting& setting : s->settings)
    command->add_option(setting.flag, setting.value, setting.help)->group(setting.group);
}

bool TrainSettings::Has(const std::string& flag) const {
  return std::any_of(settings.begin(), settings.end(), [&](const TrainSetting& setting) {
    return setting.flag == flag && !setting.value.empty();
  });
}

Algorithm AlgorithmFrom(const TrainSettings& s) {
  std::optional<Algorithm> found = FindAlgorithm(s.algorithm);
  if (!found)
    throw Error(ExitCode::kBadRequest, "no algorithm is called " + s.algorithm,
                "there are: " + AlgorithmNames());
  Algorithm algorithm = *found;
  SchemeOptions scheme = s.scheme;
  if (scheme.scheme.empty()) scheme.scheme = algorithm.scheme.name;
  algorithm.scheme = SchemeFrom(scheme);
  if (!s.select.empty()) algorithm.picked = PickedFrom(s.select);
  if (s.batch > 0) algorithm.units_per_step = s.batch;
  nlohmann::json train = local::ToJson(algorithm.train);
  for (const TrainSetting& setting : s.settings) {
    if (!setting.value.empty()) train[setting.member] = ValueOf(setting, train.at(setting.member));
  }
  algorithm.train = local::TrainOptionsFromJson(train);
  // Adapters start from nothing and have few numbers: they need, and bear, larger steps than all weights.
  if (algorithm.train.lora.rank > 0 && !s.Has("--learning-rate"))
    algorithm.train.schedule.learning_rate *= kAdapterRateFactor;
  if (s.Has("--kl-weight") && algorithm.train.loss.kl == local::KlEstimator::kNone)
    throw Error(ExitCode::kBadRequest, "--kl-weight has no effect without --kl",
                "add --kl k3, or leave out --kl-weight");
  if (algorithm.train.updates_per_step < 1 || algorithm.train.micro_tokens < 1 ||
      algorithm.train.logits_tokens < 1)
    throw Error(ExitCode::kBadRequest, "--updates, --micro-tokens and --logits-tokens are at least 1");
  if (algorithm.train.quantization != "none" && algorithm.train.lora.rank == 0)
    throw Error(ExitCode::kBadRequest, "quantised weights cannot be trained themselves", "add --lora 32");
  return algorithm;
}

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
  AddRulesOption(command, &o->rules)->group(kJudged);
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
  if (!o.Samples() && (o.prompts != OnlineSettings().prompts || o.rules != OnlineSettings().rules))
    throw Error(ExitCode::kBadRequest, "--prompts and --rules are for turns that the model makes itself",
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

std::vector<std::string> JudgeDevices(const OnlineSettings& settings) {
  return ChooseDevices(settings.judges, JudgeOptions(settings), settings.kind);
}

}  // namespace

bool JudgesOnGpu(const OnlineSettings& settings, const std::string& device) {
  if (!device.starts_with("cuda")) return false;
  const std::vector<std::string> judges = JudgeDevices(settings);
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
