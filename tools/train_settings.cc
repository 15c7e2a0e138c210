#include "tools/train_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "env/error.h"

namespace kevin {
namespace {

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
      {"--correction-low", "correction_low", "Least weight that counts", kLoss, ""},
      {"--correction-high", "correction_high", "Largest weight", kLoss, ""},
      {"--old-policy", "old_policy", "What ratios are taken against: trainer, sampler", kLoss, ""},
      {"--kl", "kl", "To the reference: none, k1, k2, k3", kLoss, ""},
      {"--kl-weight", "kl_weight", "Of that", kLoss, ""},
      {"--reference", "reference", "Folder of the reference model (default: --model)", kLoss, ""},
      {"--entropy-weight", "entropy_weight", "Of the entropy bonus", kLoss, ""},
      {"--beta", "preference_beta", "Of preferences", kLoss, ""},
      {"--learning-rate", "learning_rate", "After the warm-up", kOptimizer, ""},
      {"--schedule", "decay", "constant, cosine, linear", kOptimizer, ""},
      {"--warmup", "warmup", "Share of all updates", kOptimizer, ""},
      {"--final-fraction", "final_fraction", "Of the learning rate, where it decays to", kOptimizer, ""},
      {"--beta1", "beta1", "AdamW's", kOptimizer, ""},
      {"--beta2", "beta2", "AdamW's", kOptimizer, ""},
      {"--epsilon", "epsilon", "AdamW's", kOptimizer, ""},
      {"--weight-decay", "weight_decay", "Of matrices", kOptimizer, ""},
      {"--max-grad-norm", "max_grad_norm", "Longer gradients are shortened to it; 0: never", kOptimizer, ""},
      {"--updates", "updates_per_step", "Of the weights, a step", kOptimizer, ""},
      {"--device", "device", "cpu, cuda:0", kMemory, ""},
      {"--dtype", "dtype", "float32, bfloat16 (default: as the model's folder says)", kMemory, ""},
      {"--lora", "lora_rank", "Train adapters of this rank instead of all weights", kMemory, ""},
      {"--lora-alpha", "lora_alpha", "Their scale is this over the rank", kMemory, ""},
      {"--quantization", "quantization", "Of weights beside adapters: none, int8, nf4, nf4-double", kMemory,
       ""},
      {"--micro-tokens", "micro_tokens", "That go through the model at once", kMemory, ""},
      {"--logits-tokens", "logits_tokens", "Whose logits exist at once", kMemory, ""},
      {"--checkpoint-every", "checkpoint_every", "Steps; 0: only at the end", kRun, ""},
      {"--keep", "keep", "Checkpoints; the oldest go", kRun, ""},
  };
}

// Numbers as numbers, everything else as text.
nlohmann::json ValueOf(const TrainSetting& setting, const nlohmann::json& current) {
  if (!current.is_number()) return setting.value;
  const nlohmann::json number = nlohmann::json::parse(setting.value, nullptr, false);
  const bool fits = number.is_number() && (current.is_number_float() || number.is_number_integer());
  if (fits && number.get<double>() >= 0)
    return current.is_number_float() ? nlohmann::json(number.get<double>()) : number;
  throw Error(ExitCode::kBadRequest,
              fmt::format("{} {}: not a number that makes sense", setting.flag, setting.value));
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
  if (algorithm.train.updates_per_step < 1 || algorithm.train.micro_tokens < 1 ||
      algorithm.train.logits_tokens < 1)
    throw Error(ExitCode::kBadRequest, "--updates, --micro-tokens and --logits-tokens are at least 1");
  if (algorithm.train.quantization != "none" && algorithm.train.lora.rank == 0)
    throw Error(ExitCode::kBadRequest, "quantised weights cannot be trained themselves", "add --lora 32");
  return algorithm;
}

}  // namespace kevin
