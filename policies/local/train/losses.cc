#include "policies/local/train/losses.h"

#include <ATen/ATen.h>

#include "env/error.h"

namespace kevin::local {
namespace {

constexpr double kLargestDifference = 20;
constexpr double kVeto = 1e-4;  // of Correction::kSequenceMask

double SumOf(const at::Tensor& values) { return values.sum(at::kDouble).item<double>(); }

at::Tensor Bounded(const at::Tensor& difference) {
  return difference.clamp(-kLargestDifference, kLargestDifference);
}

class LossOf {
 public:
  LossOf(const LossOptions& options, const TokenValues& values, const LossScale& scale)
      : o_(options), v_(values), scale_(scale) {
    logprobs_ = v_.logprobs.detach();
    old_ = v_.old.defined() ? v_.old : logprobs_;
    lengths_ =
        at::zeros({v_.sequences}, logprobs_.options()).index_add(0, v_.sequence, at::ones_like(logprobs_));
    sums_.tokens = static_cast<double>(logprobs_.numel());
  }

  LossOutput Make() {
    if (o_.surrogate == Surrogate::kPreference) return Preference();
    at::Tensor term = Policy();
    if (v_.sampler.defined() && o_.correction != Correction::kNone) term = term * Weights();
    sums_.shift = SumOf(K3(old_ - logprobs_));
    if (v_.reference.defined()) {
      sums_.kl = SumOf(K3(v_.reference - logprobs_));
      if (o_.kl != KlEstimator::kNone) term = term + o_.kl_weight * Kl(v_.reference - v_.logprobs);
    }
    if (v_.entropy.defined()) {
      sums_.entropy = SumOf(v_.entropy.detach());
      if (o_.entropy_weight != 0) term = term - o_.entropy_weight * v_.entropy;
    }
    return Finish((term * TokenWeights()).sum());
  }

 private:
  static at::Tensor K3(const at::Tensor& difference) {
    const at::Tensor x = Bounded(difference);
    return x.expm1() - x;
  }

  at::Tensor Kl(const at::Tensor& difference) const {
    if (o_.kl == KlEstimator::kK1) return -difference;
    if (o_.kl == KlEstimator::kK2) return difference.square() / 2;
    return K3(difference);
  }

  // The mean over a token's sequence, for each token.
  at::Tensor SequenceMean(const at::Tensor& per_token) const {
    const at::Tensor sums =
        at::zeros({v_.sequences}, per_token.options()).index_add(0, v_.sequence, per_token);
    return (sums / lengths_).index_select(0, v_.sequence);
  }

  at::Tensor Policy() {
    if (o_.surrogate == Surrogate::kCrossEntropy) return -v_.logprobs;
    if (o_.surrogate == Surrogate::kReinforce) return -v_.advantage * v_.logprobs;
    at::Tensor difference = v_.logprobs - old_;
    if (o_.surrogate == Surrogate::kSequenceClip) difference = SequenceMean(difference);
    const at::Tensor ratio = Bounded(difference).exp();
    CountClipped(ratio.detach());
    if (o_.surrogate == Surrogate::kCispo) {
      return -ratio.detach().clamp_max(1 + o_.clip_high) * v_.advantage * v_.logprobs;
    }
    const at::Tensor clipped = ratio.clamp(1 - o_.clip_low, 1 + o_.clip_high);
    at::Tensor term = -at::minimum(ratio * v_.advantage, clipped * v_.advantage);
    if (o_.dual_clip > 0) {
      const at::Tensor bounded = at::minimum(term, -o_.dual_clip * v_.advantage);
      term = at::where(v_.advantage < 0, bounded, term);
    }
    return term;
  }

  void CountClipped(const at::Tensor& ratio) {
    sums_.clip_high = SumOf((ratio > 1 + o_.clip_high).logical_and(v_.advantage > 0));
    if (o_.surrogate == Surrogate::kCispo) return;
    sums_.clip_low = SumOf((ratio < 1 - o_.clip_low).logical_and(v_.advantage < 0));
  }

  at::Tensor Weights() {
    const at::Tensor difference = old_ - v_.sampler;
    const at::Tensor w = Bounded(difference).exp();
    at::Tensor weights;
    if (o_.correction == Correction::kTruncate) {
      weights = w.clamp_max(o_.correction_high);
    } else if (o_.correction == Correction::kMask) {
      weights = at::where(Inside(w), w, at::zeros_like(w));
    } else {
      const at::Tensor kept = Inside(Bounded(SequenceMean(difference)).exp());
      const at::Tensor vetoed = SequenceMean((w < kVeto).to(w.scalar_type())) > 0;
      weights = kept.logical_and(vetoed.logical_not()).to(w.scalar_type());
    }
    sums_.weights = SumOf(weights);
    sums_.dropped = SumOf(weights == 0);
    return weights;
  }

  at::Tensor Inside(const at::Tensor& w) const {
    return (w >= o_.correction_low).logical_and(w <= o_.correction_high);
  }

  at::Tensor TokenWeights() const {
    switch (o_.normaliser) {
      case Normaliser::kTokenMean:
        return at::full_like(logprobs_, 1 / scale_.tokens);
      case Normaliser::kSequenceSum:
        return at::full_like(logprobs_, 1 / scale_.sequences);
      case Normaliser::kConstant:
        return at::full_like(logprobs_, 1 / (scale_.sequences * o_.constant_tokens));
      case Normaliser::kSequenceMean:
        break;
    }
    return 1 / (scale_.sequences * lengths_.index_select(0, v_.sequence));
  }

  LossOutput Preference() {
    if (!v_.reference.defined() || v_.sequences % 2 != 0)
      throw Error(ExitCode::kBroken, "preferences need a reference and whole pairs");
    const at::Tensor gains = at::zeros({v_.sequences}, v_.logprobs.options())
                                 .index_add(0, v_.sequence, v_.logprobs - v_.reference)
                                 .view({-1, 2});
    const at::Tensor margins = o_.preference_beta * (gains.select(1, 0) - gains.select(1, 1));
    sums_.pairs = static_cast<double>(margins.numel());
    sums_.preferred = SumOf(margins.detach() > 0);
    sums_.margins = SumOf(margins.detach());
    sums_.kl = SumOf(K3(v_.reference - logprobs_));
    return Finish(-at::log_sigmoid(margins).sum() / (scale_.sequences / 2));
  }

  LossOutput Finish(const at::Tensor& loss) {
    sums_.loss = loss.item<double>();
    return {loss, sums_};
  }

  const LossOptions& o_;
  const TokenValues& v_;
  const LossScale& scale_;
  at::Tensor logprobs_, old_, lengths_;
  LossSums sums_;
};

}  // namespace

void LossSums::Add(const LossSums& other) {
  tokens += other.tokens, loss += other.loss, clip_low += other.clip_low, clip_high += other.clip_high;
  kl += other.kl, shift += other.shift, entropy += other.entropy;
  weights += other.weights, dropped += other.dropped;
  pairs += other.pairs, preferred += other.preferred, margins += other.margins;
}

LossOutput Loss(const LossOptions& options, const TokenValues& values, const LossScale& scale) {
  return LossOf(options, values, scale).Make();
}

}  // namespace kevin::local
