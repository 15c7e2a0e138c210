#include "policies/local/train/options.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numbers>
#include <set>
#include <utility>
#include <vector>

#include "env/error.h"

namespace kevin::local {

double LearningRate(const ScheduleOptions& options, int64_t update, int64_t updates) {
  const auto warmup = static_cast<int64_t>(std::ceil(options.warmup * static_cast<double>(updates)));
  if (update < warmup) {
    return options.learning_rate * static_cast<double>(update + 1) / static_cast<double>(warmup);
  }
  if (options.decay == Decay::kConstant) return options.learning_rate;
  const double left = static_cast<double>(std::max<int64_t>(1, updates - warmup));
  const double p = std::min(1.0, static_cast<double>(update - warmup) / left);
  const double shape = options.decay == Decay::kLinear ? 1 - p : (1 + std::cos(std::numbers::pi * p)) / 2;
  const double f = options.final_fraction;
  return options.learning_rate * (f + (1 - f) * shape);
}

std::vector<std::string> TargetsOf(const LoraOptions& options) {
  std::vector<std::string> targets;
  for (size_t begin = 0; begin < options.targets.size();) {
    const size_t end = std::min(options.targets.find(',', begin), options.targets.size());
    targets.push_back(options.targets.substr(begin, end - begin));
    begin = end + 1;
  }
  return targets;
}

bool NeedsReference(const TrainOptions& options) {
  return options.loss.surrogate == Surrogate::kPreference || options.loss.kl != KlEstimator::kNone;
}

bool LoadsReference(const TrainOptions& options) {
  std::error_code different;
  const bool is_below_adapters =
      options.lora.rank > 0 &&
      (options.reference.empty() || std::filesystem::equivalent(options.reference, options.model, different));
  return NeedsReference(options) && !is_below_adapters;
}

NLOHMANN_JSON_SERIALIZE_ENUM(Surrogate, {{Surrogate::kClip, "clip"},
                                         {Surrogate::kSequenceClip, "sequence-clip"},
                                         {Surrogate::kCispo, "cispo"},
                                         {Surrogate::kReinforce, "reinforce"},
                                         {Surrogate::kCrossEntropy, "cross-entropy"},
                                         {Surrogate::kPreference, "preference"}})
NLOHMANN_JSON_SERIALIZE_ENUM(Normaliser, {{Normaliser::kTokenMean, "token-mean"},
                                          {Normaliser::kSequenceMean, "sequence-mean"},
                                          {Normaliser::kSequenceSum, "sequence-sum"},
                                          {Normaliser::kConstant, "constant"}})
NLOHMANN_JSON_SERIALIZE_ENUM(Correction, {{Correction::kNone, "none"},
                                          {Correction::kTruncate, "truncate"},
                                          {Correction::kMask, "mask"},
                                          {Correction::kSequenceMask, "sequence-mask"}})
NLOHMANN_JSON_SERIALIZE_ENUM(KlEstimator, {{KlEstimator::kNone, "none"},
                                           {KlEstimator::kK1, "k1"},
                                           {KlEstimator::kK2, "k2"},
                                           {KlEstimator::kK3, "k3"}})
NLOHMANN_JSON_SERIALIZE_ENUM(OldPolicy, {{OldPolicy::kTrainer, "trainer"}, {OldPolicy::kSampler, "sampler"}})
NLOHMANN_JSON_SERIALIZE_ENUM(Decay, {{Decay::kConstant, "constant"},
                                     {Decay::kCosine, "cosine"},
                                     {Decay::kLinear, "linear"}})

namespace {

using Json = nlohmann::json;

// Calls visit(name, member) for each member, so that writing and reading agree.
template <class Options, class Visit>
void VisitLoss(Options& o, const Visit& visit) {
  visit("surrogate", o.surrogate), visit("clip_low", o.clip_low), visit("clip_high", o.clip_high);
  visit("dual_clip", o.dual_clip), visit("normaliser", o.normaliser);
  visit("constant_tokens", o.constant_tokens), visit("correction", o.correction);
  visit("correction_low", o.correction_low), visit("correction_high", o.correction_high);
  visit("old_policy", o.old_policy), visit("kl", o.kl), visit("kl_weight", o.kl_weight);
  visit("entropy_weight", o.entropy_weight), visit("preference_beta", o.preference_beta);
}

template <class Options, class Visit>
void VisitParts(Options& o, const Visit& visit) {
  visit("learning_rate", o.schedule.learning_rate), visit("decay", o.schedule.decay);
  visit("warmup", o.schedule.warmup), visit("final_fraction", o.schedule.final_fraction);
  visit("beta1", o.adam.beta1), visit("beta2", o.adam.beta2), visit("epsilon", o.adam.epsilon);
  visit("weight_decay", o.adam.weight_decay), visit("max_grad_norm", o.adam.max_grad_norm);
  visit("optimizer_on_cpu", o.adam.on_cpu);
  visit("lora_rank", o.lora.rank), visit("lora_alpha", o.lora.alpha);
  visit("lora_targets", o.lora.targets);
}

template <class Options, class Visit>
void VisitAll(Options& o, const Visit& visit) {
  visit("model", o.model), visit("reference", o.reference), visit("output", o.output);
  visit("dtype", o.dtype), visit("device", o.device), visit("quantization", o.quantization);
  visit("recompute", o.recompute), visit("choose_recompute", o.choose_recompute);
  visit("shard", o.shard);
  visit("split_sampler", o.split_sampler), visit("choose_split_sampler", o.choose_split_sampler);
  VisitLoss(o.loss, visit);
  VisitParts(o, visit);
  visit("longest_tokens", o.data.longest_tokens), visit("units", o.data.units);
  visit("fingerprint", o.data.fingerprint);
  visit("model_fingerprint", o.trained.fingerprint);
  visit("reference_fingerprint", o.trained.reference), visit("weights_dtype", o.trained.dtype);
  visit("steps", o.steps), visit("units_per_step", o.units_per_step);
  visit("updates_per_step", o.updates_per_step);
  visit("units_per_update", o.units_per_update);
  visit("micro_tokens", o.micro_tokens), visit("logits_tokens", o.logits_tokens);
  visit("checkpoint_every", o.checkpoint_every), visit("keep", o.keep);
  visit("gap_limit", o.gap_limit);
  visit("judge_bytes", o.judge_bytes), visit("judges_meanwhile", o.judges_meanwhile);
  visit("seed", o.seed), visit("from_base", o.from_base), visit("resume", o.resume);
}

[[noreturn]] void Bad(const std::string& name, const Json& value) {
  throw Error(ExitCode::kBadRequest, "training option " + name + ": " + value.dump() + " is no value for it");
}

}  // namespace

Json ToJson(const TrainOptions& options) {
  Json json = Json::object();
  VisitAll(options, [&](const char* name, const auto& member) { json[name] = member; });
  return json;
}

TrainOptions TrainOptionsFromJson(const Json& json) {
  TrainOptions options;
  std::set<std::string> known;
  VisitAll(options, [&](const char* name, auto& member) {
    known.insert(name);
    if (!json.contains(name)) return;
    try {
      json.at(name).get_to(member);
    } catch (const Json::exception&) {
      Bad(name, json.at(name));
    }
    if (Json(member) != json.at(name)) Bad(name, json.at(name));  // an unknown word reads as the first one
  });
  for (const auto& [name, value] : json.items()) {
    if (!known.contains(name)) throw Error(ExitCode::kBadRequest, "no training option is called " + name);
  }
  return options;
}

}  // namespace kevin::local
