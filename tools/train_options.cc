#include "tools/train_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "agent/conversation.h"
#include "agent/train/model_text.h"
#include "agent/train/placement.h"
#include "env/device_pool.h"
#include "env/error.h"
#include "env/problem/problem.h"
#include "env/process/runner_protocol.h"
#include "policies/local/files/model_config.h"
#include "policies/local/train/sampling_options.h"
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
  command
      ->add_flag("--split-sampler,!--no-split-sampler", o->split_sampler,
                 "With --shard: all ranks sample together, each with a part of the heads and of the cache "
                 "(default: where whole weights and cache do not fit one GPU)")
      ->group("Model and memory");
  command->add_flag("--optimizer-on-cpu", o->optimizer_on_cpu, "Keep the optimiser in main memory")
      ->group("Model and memory");
  command->add_flag("--from-base", o->from_base, "Each step begins with --model's weights again (tpt)");
  AddTrainSettings(command, &o->settings);
  AddOnlineSettings(command, &o->sampling);
  AddFilterOptions(command, &o->filter);
  AddAcceptedVerdicts(command, &o->accept);
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
  if (!request.output.empty()) wanted.evaluated_by = PolicyNameOfRun(request.output);
  wanted.left_out = IdsOfSuite(request.without), wanted.held_out = IdsOfSuite(request.held_out);
  for (const auto* more : {&suites.dev, &suites.test})
    wanted.held_out.insert(wanted.held_out.end(), more->begin(), more->end());
  wanted.filter = FilterFrom(request.filter);
  wanted.scheme = algorithm.scheme;
  wanted.accept = request.accept;
  if (algorithm.material == Material::kAnswers) wanted.leave_out = LeaveOut::kTurns;
  return wanted;
}

void CheckSource(const TrainRequest& request) {
  RecordFilter filter = FilterFrom(request.filter);
  if (!request.sampling.online) return;
  if (request.databases.size() > 1)
    throw Error(ExitCode::kBadRequest, "--online keeps its turns in one database", "give --db once");
  if (request.dry_run)
    throw Error(ExitCode::kBadRequest, "--dry-run shows records, and --online has none yet",
                "leave one of them out");
  for (const auto& [is_given, flag] : {std::pair(!request.held_out.empty(), "--held-out"),
                                       {!request.problems.empty(), "--problems"},
                                       {!request.runs.empty(), "--run"},
                                       {request.epochs > 0, "--epochs"}}) {
    if (is_given)
      throw Error(ExitCode::kBadRequest,
                  fmt::format("{} is for records, and --online learns from its own turns", flag),
                  "choose problems with --suite and --without, the length with --steps");
  }
  filter.kind.clear(), filter.rules.clear();  // of what the model writes
  if (filter != RecordFilter{})
    throw Error(ExitCode::kBadRequest, "--online learns from its own turns; filters are for records",
                "leave them out, or leave out --online");
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
  const RecordFilter& filter = request->filter.filter;
  sampling.kind = filter.kind;
  if (!filter.rules.empty()) sampling.rules = filter.rules;
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
  if (sampling.problems_per_step == 0) sampling.problems_per_step = algorithm.train.units_per_step;
  // A round of imitation is one epoch over the chosen turns, batch after batch.
  if (algorithm.material == Material::kAnswers && !request->settings.Has("--updates")) {
    // At most: how many are correct is known after they were made.
    const int answers = sampling.problems_per_step *
                        (algorithm.picked == Picked::kBest ? 1 : sampling.samples * sampling.turns);
    algorithm.train.updates_per_step =
        (answers + algorithm.train.units_per_step - 1) / algorithm.train.units_per_step;
    algorithm.train.units_per_update = algorithm.train.units_per_step;
  }
  return algorithm;
}

// Sampling in bfloat16 and training in it differ by 0.01 to 0.03 a token, two different policies by more than this.
constexpr double kGapLimit = 0.2;

namespace {

void CheckSplitSampler(const TrainRequest& request) {
  if (!request.split_sampler.value_or(false)) return;
  const OnlineSettings& sampling = request.sampling;
  if (!request.shard)
    throw Error(ExitCode::kBadRequest, "--split-sampler samples from split weights", "add --shard");
  if (!sampling.SamplesItself())
    throw Error(ExitCode::kBadRequest, "--split-sampler: this run does not sample the model in training",
                "add --online, --eval-suite or --test-suite, or leave it out");
  if (!sampling.sampler_device.empty() || sampling.place.find("sampler") != std::string::npos)
    throw Error(ExitCode::kBadRequest,
                "--split-sampler samples on the ranks' own devices, not from a second copy",
                "leave out --sampler-device and the sampler of --place");
  const LocalRank rank = LocalRankFromEnvironment();
  const local::CannotSplit why =
      local::WhyNotSplit(local::ReadModelConfig(request.model), "none", rank.ranks);
  if (!why.reason.empty()) throw Error(ExitCode::kBadRequest, why.reason, why.next);
}

}  // namespace

local::TrainOptions OptionsFrom(const TrainRequest& request, const Algorithm& algorithm) {
  local::TrainOptions options = algorithm.train;
  options.model = request.model, options.output = request.output;
  options.seed = request.seed, options.resume = request.resume;
  options.recompute = request.recompute.value_or(false),
  options.choose_recompute = !request.recompute.has_value();
  options.adam.on_cpu = request.optimizer_on_cpu;
  options.from_base = request.from_base, options.shard = request.shard;
  options.split_sampler = request.split_sampler.value_or(false);
  options.choose_split_sampler = !request.split_sampler.has_value();
  CheckSplitSampler(request);
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
      {"--device", "device",
       "auto (the GPU where the memory plan fits, else the CPU where it does; several ranks: a GPU each), cpu, cuda, cuda:N",
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
  if (s.batch > 0) algorithm.train.units_per_step = s.batch;
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

}  // namespace kevin
