#include "policies/local/train/trainer.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <optional>

#include "env/error.h"
#include "policies/local/files/tensor_list.h"
#include "policies/local/model/device.h"
#include "policies/local/train/batch.h"
#include "policies/local/train/options.h"
#include "policies/local/train/token_logprobs.h"

namespace kevin::local {
namespace {

double TrainerSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool IsPolicyGradient(Surrogate surrogate) {
  return surrogate != Surrogate::kCrossEntropy && surrogate != Surrogate::kPreference;
}

double Ratio(double a, double b) { return b > 0 ? a / b : std::numeric_limits<double>::quiet_NaN(); }

}  // namespace

// The samples of one forward pass.
struct Trainer::Micro {
  std::vector<const Sample*> samples;
  at::Tensor old, reference;  // [N] on the CPU; undefined where not needed
  int64_t tokens = 0;
  bool is_padding = false;  // teaches nothing: runs beside a pass of other ranks
};

struct Trainer::Update {
  std::vector<Micro> micros;   // this rank's
  bool has_gradients = false;  // on any rank
  LossScale scale;
};

class Trainer::StepRun {
 public:
  StepRun(Trainer& trainer, const Batch& batch) : t_(trainer), o_(trainer.options_), batch_(batch) {}

  StepFigures Run() {
    const double start = TrainerSeconds();
    Check();
    Cut();
    if (!ComparesWhatItLearns()) CompareProbes();
    if (o_.from_base && !updates_.empty() && batch_.step > 1) t_.optimizer_.SetShare(t_.base_);
    LookBefore();
    const int64_t all = (o_.from_base ? 1 : o_.steps) * o_.updates_per_step;
    const int64_t before = o_.from_base ? 0 : (batch_.step - 1) * o_.updates_per_step;
    for (size_t u = 0; u < updates_.size(); ++u) {
      for (Micro& micro : updates_[u].micros) Learn(micro, updates_[u].scale, u == 0);
      const double norm = t_.optimizer_.Reduce();
      AddUp(&update_sums_);
      if (u == 0) CheckGap();
      if (!std::isfinite(norm) || !std::isfinite(update_sums_.loss)) Stop(u, norm);
      // Where a step has fewer updates they cover its part of the schedule.
      const auto at = static_cast<int64_t>(u) * o_.updates_per_step / static_cast<int64_t>(updates_.size());
      figures_.learning_rate = LearningRate(o_.schedule, before + at, all);
      t_.optimizer_.Update(figures_.learning_rate, norm);
      figures_.grad_norm += norm / static_cast<double>(updates_.size());
      figures_.loss += update_sums_.loss / static_cast<double>(updates_.size());
      sums_.Add(update_sums_);
      update_sums_ = {};
    }
    Finish(start);
    return figures_;
  }

 private:
  void Check() const {
    if (batch_.samples.size() % static_cast<size_t>(batch_.unit) != 0)
      throw Error(ExitCode::kBroken, "a batch with half a pair");
    const bool needs_sampler =
        IsPolicyGradient(o_.loss.surrogate) &&
        (o_.loss.correction != Correction::kNone || o_.loss.old_policy == OldPolicy::kSampler);
    for (const Sample& sample : batch_.samples) {
      if (sample.prompt.empty() || sample.completion.empty())
        throw Error(ExitCode::kBroken, "a sample without prompt or completion");
      if (needs_sampler && sample.sampler_logprobs.size() != sample.completion.size()) {
        throw Error(ExitCode::kBadRequest,
                    fmt::format("step {}: a turn was recorded without the log-probabilities of its tokens",
                                batch_.step),
                    "collect with a policy that records them, or train with --correction none");
      }
    }
  }

  // Masked samples are left out; those without an advantage count, but need no gradient.
  bool IsTrained(const Sample& sample) const { return !sample.masked; }
  bool HasGradient(const Sample& sample) const {
    return !IsPolicyGradient(o_.loss.surrogate) || sample.advantage != 0 || o_.loss.kl_weight != 0 ||
           o_.loss.entropy_weight != 0;
  }

  void Cut() {
    const auto unit = static_cast<size_t>(batch_.unit);
    const size_t units = batch_.samples.size() / unit;
    auto parts = static_cast<size_t>(o_.updates_per_step);
    if (const auto most = static_cast<size_t>(o_.units_per_update); most > 0)
      parts = std::clamp<size_t>((units + most - 1) / most, 1, parts);
    const std::vector<size_t> order = Shuffled(units, o_.seed, static_cast<uint64_t>(batch_.step));
    for (size_t part = 0; part < parts; ++part) {
      const Share share = ShareOf(units, parts, part);
      Update update;
      std::vector<size_t> kept;
      for (size_t i = share.first; i < share.last; ++i) AddUnit(order[i] * unit, unit, &update, &kept);
      if (update.scale.tokens == 0) continue;
      PackUpdate(kept, unit, &update);
      update.has_gradients = !kept.empty();
      updates_.push_back(std::move(update));
    }
    if (updates_.empty() && !batch_.may_be_idle)
      throw Error(ExitCode::kBadRequest, fmt::format("step {} has nothing to train on", batch_.step),
                  "more turns a batch, or keep what was cut off by the length limit");
    figures_.updates = static_cast<int>(updates_.size());
    if (updates_.empty()) figures_.loss = figures_.grad_norm = figures_.learning_rate = Ratio(0, 0);
  }

  void AddUnit(size_t first, size_t unit, Update* update, std::vector<size_t>* kept) const {
    for (size_t i = first; i < first + unit; ++i) {
      if (!IsTrained(batch_.samples[i])) return;
    }
    bool has_gradient = false;
    for (size_t i = first; i < first + unit; ++i) {
      update->scale.sequences += 1;
      update->scale.tokens += static_cast<double>(batch_.samples[i].completion.size());
      has_gradient |= HasGradient(batch_.samples[i]);
    }
    if (has_gradient) kept->push_back(first);
  }

  void PackUpdate(const std::vector<size_t>& kept, size_t unit, Update* update) const {
    std::vector<int64_t> lengths;
    for (const size_t first : kept) {
      int64_t length = 0;
      for (size_t i = first; i < first + unit; ++i) length += batch_.samples[i].tokens() - 1;
      lengths.push_back(length);
    }
    const auto groups = Pack(lengths, o_.micro_tokens);
    const auto ranks = static_cast<size_t>(t_.ranks_.Size()), rank = static_cast<size_t>(t_.ranks_.Rank());
    for (size_t g = rank; g < groups.size(); g += ranks) {
      Micro micro;
      for (const size_t k : groups[g]) {
        for (size_t i = kept[k]; i < kept[k] + unit; ++i) micro.samples.push_back(&batch_.samples[i]);
        micro.tokens += lengths[k];
      }
      update->micros.push_back(std::move(micro));
    }
    // Sharded weights are gathered for a pass by all ranks together.
    const size_t passes = (groups.size() + ranks - 1) / ranks;
    if (t_.shards_ == nullptr || update->micros.size() >= passes) return;
    Micro padding;
    padding.is_padding = true;
    for (size_t i = kept[groups.back()[0]]; i < kept[groups.back()[0]] + unit; ++i)
      padding.samples.push_back(&batch_.samples[i]);
    update->micros.push_back(std::move(padding));
  }

  at::Device Device() const { return t_.model_.Options().device; }

  // Whether the passes of the first update tell the gap to the sampler. Equal on all ranks.
  bool ComparesWhatItLearns() const {
    return IsPolicyGradient(o_.loss.surrogate) && !updates_.empty() && updates_[0].has_gradients;
  }

  // Otherwise a pass without gradients tells it. Before the weights are those of the base, which the turns do not come from.
  void CompareProbes() {
    const bool from_samples = batch_.probes.empty() && IsPolicyGradient(o_.loss.surrogate);
    std::vector<const Sample*> probes, own;
    std::vector<int64_t> lengths;
    for (const Sample& sample : from_samples ? batch_.samples : batch_.probes) {
      if (sample.sampler_logprobs.size() != sample.completion.size()) continue;
      probes.push_back(&sample), lengths.push_back(sample.tokens() - 1);
      if (probes.size() == kMostProbes) break;
    }
    const auto groups = Pack(lengths, o_.micro_tokens);
    const auto rank = static_cast<size_t>(t_.ranks_.Rank());
    const bool is_padding = rank >= groups.size();
    if (groups.empty() || (is_padding && t_.shards_ == nullptr)) return CheckGap();
    for (const size_t i : groups[is_padding ? 0 : rank]) own.push_back(probes[i]);
    const c10::NoGradGuard no_gradients;
    const Packed packed = PackSamples(own, Device());
    const at::Tensor now = CompletionLogprobs(t_.model_, packed, o_.logits_tokens, false).logprobs;
    if (!is_padding) Compare(packed, now, true);
    CheckGap();
  }

  // Log-probabilities needed from before the first update.
  void LookBefore() {
    const c10::NoGradGuard no_gradients;
    const bool look_back = IsPolicyGradient(o_.loss.surrogate) && o_.loss.old_policy == OldPolicy::kTrainer;
    for (size_t u = 0; u < updates_.size(); ++u) {
      for (Micro& micro : updates_[u].micros) {
        // The first update uses its own.
        const bool needs_old = look_back && u > 0;
        if (!needs_old && t_.reference_ == nullptr) continue;
        const Packed packed = PackSamples(micro.samples, Device());
        if (needs_old)
          micro.old = CompletionLogprobs(t_.model_, packed, o_.logits_tokens, false).logprobs.cpu();
        if (t_.reference_ == nullptr) continue;
        std::optional<WithoutAdapters> base;
        if (t_.reference_ == &t_.model_) base.emplace(t_.model_);
        micro.reference = CompletionLogprobs(*t_.reference_, packed, o_.logits_tokens, false).logprobs.cpu();
      }
    }
  }

  void Learn(Micro& micro, const LossScale& scale, bool is_first) {
    const Packed packed = PackSamples(micro.samples, Device());
    const bool with_entropy = IsPolicyGradient(o_.loss.surrogate);
    const TokenLogprobs now = CompletionLogprobs(t_.model_, packed, o_.logits_tokens, with_entropy);
    if (micro.is_padding) {
      now.logprobs.backward(at::zeros_like(now.logprobs));
      return t_.optimizer_.Accumulate();
    }
    TokenValues values;
    values.logprobs = now.logprobs, values.entropy = now.entropy;
    values.advantage = packed.advantage, values.sequence = packed.sequence,
    values.sequences = packed.sequences;
    if (micro.reference.defined()) values.reference = micro.reference.to(Device());
    if (IsPolicyGradient(o_.loss.surrogate)) {
      if (micro.old.defined()) values.old = micro.old.to(Device());
      Compare(packed, values.old.defined() ? values.old : now.logprobs.detach(),
              values.old.defined() || is_first);
      values.sampler = packed.sampler;
      if (o_.loss.old_policy == OldPolicy::kSampler) values.old = packed.sampler;
    }
    const LossOutput out = Loss(o_.loss, values, scale);
    update_sums_.Add(out.sums);
    out.loss.backward();
    t_.optimizer_.Accumulate();
    tokens_ += static_cast<double>(micro.tokens), rows_ += static_cast<double>(packed.targets.numel());
    for (const Sample* s : micro.samples) squares_ += static_cast<double>(s->tokens() * s->tokens());
  }

  // The trainer's log-probabilities before the step against the sampler's.
  void Compare(const Packed& packed, const at::Tensor& before, bool is_before) {
    if (!packed.sampler.defined() || !is_before) return;
    const at::Tensor gap = (before - packed.sampler).abs();
    gaps_ += gap.sum(at::kDouble).item<double>(), compared_ += static_cast<double>(gap.numel());
    gap_max_ = std::max(gap_max_, gap.max().item<double>());
  }

  // Sums over all ranks.
  void AddUp(LossSums* s) const {
    at::Tensor sums = at::tensor({s->tokens, s->loss, s->clip_low, s->clip_high, s->kl, s->shift, s->entropy,
                                  s->weights, s->dropped, s->pairs, s->preferred, s->margins},
                                 at::kDouble);
    t_.ranks_.Sum(&sums);
    const double* v = sums.const_data_ptr<double>();
    *s = {v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10], v[11]};
  }

  // Before the first update, so that nothing is learnt from turns of another policy.
  void CheckGap() const {
    if (o_.gap_limit <= 0) return;
    at::Tensor all = at::tensor({gaps_, compared_}, at::kDouble);
    t_.ranks_.Sum(&all);
    const double gap = Ratio(all[0].item<double>(), all[1].item<double>());
    if (!(gap > o_.gap_limit)) return;
    throw Error(
        ExitCode::kBroken,
        fmt::format(
            "step {}: log-probabilities of sampler and trainer differ by {:.3g} a token, above the limit of "
            "{:g}: they are not one policy; nothing was learnt from this step",
            batch_.step, gap, o_.gap_limit),
        "the newest checkpoint is good; --gap-limit sets the limit (0: none), --correction how differences are weighed");
  }

  [[noreturn]] void Stop(size_t update, double norm) const {
    throw Error(
        ExitCode::kBroken,
        fmt::format("step {}, update {} of {}: loss {}, gradient norm {}: not finite; these weights are "
                    "not kept",
                    batch_.step, update + 1, updates_.size(), update_sums_.loss, norm),
        "the newest checkpoint is good: go on from it with --resume and a lower learning rate");
  }

  void Finish(double start) {
    at::Tensor all = at::tensor({tokens_, gaps_, compared_, squares_, rows_}, at::kDouble);
    at::Tensor largest = at::tensor({gap_max_}, at::kDouble);
    t_.ranks_.Sum(&all), t_.ranks_.Largest(&largest);
    const double* v = all.const_data_ptr<double>();
    figures_.step = batch_.step;
    figures_.tokens = static_cast<int64_t>(v[0]),
    figures_.trained_tokens = static_cast<int64_t>(sums_.tokens);
    figures_.delta_logprob = Ratio(v[1], v[2]);
    figures_.delta_logprob_max = v[2] > 0 ? largest.item<double>() : Ratio(0, 0);
    const ModelConfig& c = t_.model_.Config();
    // Forward, and backward to the inputs; a third time to the weights unless only adapters are trained.
    const double passes = t_.trains_weights_ ? 3 : 2;
    figures_.flops = passes * 2 * (t_.products_ * v[0] + t_.head_products_ * v[4]) +
                     6.0 * c.layers * c.heads * c.head_dim * v[3];
    const bool policy = IsPolicyGradient(o_.loss.surrogate);
    figures_.entropy = policy ? Ratio(sums_.entropy, sums_.tokens) : Ratio(0, 0);
    figures_.clip_low = Ratio(sums_.clip_low, sums_.tokens),
    figures_.clip_high = Ratio(sums_.clip_high, sums_.tokens);
    figures_.kl = t_.reference_ != nullptr ? Ratio(sums_.kl, sums_.tokens) : Ratio(0, 0);
    figures_.policy_shift = Ratio(sums_.shift, sums_.tokens);
    const bool corrected = policy && o_.loss.correction != Correction::kNone;
    figures_.correction_mean = corrected ? Ratio(sums_.weights, sums_.tokens) : Ratio(0, 0);
    figures_.correction_dropped = corrected ? Ratio(sums_.dropped, sums_.tokens) : Ratio(0, 0);
    figures_.preference_accuracy = Ratio(sums_.preferred, sums_.pairs);
    figures_.preference_margin = Ratio(sums_.margins, sums_.pairs);
    figures_.seconds = TrainerSeconds() - start;
  }

  Trainer& t_;
  const TrainOptions& o_;
  const Batch& batch_;
  std::vector<Update> updates_;
  StepFigures figures_;
  LossSums sums_, update_sums_;
  double tokens_ = 0, rows_ = 0, squares_ = 0, gaps_ = 0, compared_ = 0, gap_max_ = 0;
};

Trainer::Trainer(TrainOptions options, LanguageModel& model, LanguageModel* reference, Ranks& ranks)
    : options_(std::move(options)),
      model_(model),
      reference_(reference),
      ranks_(ranks),
      shards_(options_.shard ? std::make_unique<ShardedWeights>(model, options_.adam, ranks) : nullptr),
      optimizer_(model.Parameters(), options_.adam, ranks, shards_.get()) {
  if (options_.from_base) base_ = optimizer_.Share();
  const bool needs_reference =
      options_.loss.surrogate == Surrogate::kPreference || options_.loss.kl != KlEstimator::kNone;
  if (needs_reference && reference_ == nullptr)
    throw Error(ExitCode::kBroken, "this loss needs a reference model");
  for (const ExpectedTensor& tensor : ExpectedTensors(model.Config())) {
    const ModelConfig& c = model.Config();
    const double share = tensor.is_expert ? static_cast<double>(c.experts_per_token) / c.experts : 1;
    const double count = share * static_cast<double>(tensor.Count());
    if (tensor.role == ExpectedTensor::Role::kProjection) products_ += count;
    const bool is_head = tensor.role == ExpectedTensor::Role::kHead ||
                         (tensor.role == ExpectedTensor::Role::kEmbedding && c.tied_embeddings);
    if (is_head) head_products_ += count;
  }
  for (const NamedParameter& parameter : model.Parameters())
    trains_weights_ |= parameter.name.find("lora_") == std::string::npos;
  MakeRoomForJudge();
}

Trainer::~Trainer() = default;

StepFigures Trainer::Step(const Batch& batch) {
  if (batch.step != steps_done_ + 1)
    throw Error(ExitCode::kBroken, fmt::format("step {} does not follow step {}", batch.step, steps_done_));
  if (shards_) {
    shards_->Release();
    ReturnFreeMemory(model_.Options().device);
  }
  StepFigures figures = StepRun(*this, batch).Run();
  if (shards_) {
    // Blocks of activations and gradients are of no use to whole weights or a cache.
    shards_->DropGradients();
    ReturnFreeMemory(model_.Options().device);
  }
  MakeRoomForJudge();
  steps_done_ = batch.step;
  return figures;
}

void Trainer::MakeWhole() {
  if (!shards_) return;
  shards_->MakeWhole();
  MakeRoomForJudge();
}

}  // namespace kevin::local
