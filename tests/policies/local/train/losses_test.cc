// The loss and its gradients against closed forms worked out here in plain doubles, and finite differences.

#include "policies/local/train/losses.h"

#include <ATen/ATen.h>

#include <cmath>
#include <functional>
#include <random>

#include "policies/local/train/token_logprobs.h"
#include "tests/catch.h"

namespace kevin::local {
namespace {

at::Tensor Doubles(const std::vector<double>& values) { return at::tensor(values, at::kDouble); }
at::Tensor Integers(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }
double At(const at::Tensor& values, int64_t i) { return values.reshape(-1)[i].item<double>(); }

// Three sequences of 2, 3 and 1 tokens.
struct Case {
  std::vector<double> logprobs = {-1.0, -0.5, -2.0, -0.1, -1.5, -0.7};
  std::vector<double> old = {-1.3, -0.5, -1.6, -0.2, -1.9, -0.9};
  std::vector<double> sampler = {-1.2, -0.9, -1.6, -0.1, -1.2, -2.9};
  std::vector<double> reference = {-0.8, -0.6, -2.2, -0.3, -1.0, -0.7};
  std::vector<double> entropy = {1.1, 0.4, 0.9, 0.2, 1.4, 0.6};
  std::vector<double> advantage = {1.5, 1.5, -0.7, -0.7, -0.7, -2.0};
  std::vector<int64_t> sequence = {0, 0, 1, 1, 1, 2};

  TokenValues Values() const {
    return {Doubles(logprobs),  Doubles(entropy),   Doubles(old),       Doubles(sampler),
            Doubles(reference), Doubles(advantage), Integers(sequence), 3};
  }
  double Length(size_t t) const { return sequence[t] == 0 ? 2 : sequence[t] == 1 ? 3 : 1; }
};
const LossScale kScale{3, 6};

LossOptions Plain(Surrogate surrogate) {
  LossOptions options;
  options.surrogate = surrogate;
  options.normaliser = Normaliser::kTokenMean;
  return options;
}

double LossAt(const LossOptions& options, const Case& c) {
  return Loss(options, c.Values(), kScale).loss.item<double>();
}

// d loss / d logprobs by autograd.
std::vector<double> Gradients(const LossOptions& options, const Case& c) {
  TokenValues values = c.Values();
  values.logprobs.requires_grad_(true);
  Loss(options, values, kScale).loss.backward();
  std::vector<double> gradients;
  for (int64_t i = 0; i < 6; ++i) gradients.push_back(At(values.logprobs.grad(), i));
  return gradients;
}

void CheckAgainstDifferences(const LossOptions& options) {
  const Case c;
  const std::vector<double> gradients = Gradients(options, c);
  double largest = 0;
  for (size_t t = 0; t < 6; ++t) {
    Case up = c, down = c;
    up.logprobs[t] += 1e-6, down.logprobs[t] -= 1e-6;
    const double difference = (LossAt(options, up) - LossAt(options, down)) / 2e-6;
    CHECK(gradients[t] == Approx(difference).margin(1e-7));
    largest = std::max(largest, std::abs(gradients[t]));
  }
  CHECK(largest > 1e-3);  // there was something to compare
}

double Clip(double r, double a, double low, double high) {
  return -std::min(r * a, std::clamp(r, 1 - low, 1 + high) * a);
}

TEST_CASE("clip: token by token, with both ends of the interval at work") {
  const LossOptions options = Plain(Surrogate::kClip);
  const Case c;
  double expected = 0, low = 0, high = 0;
  for (size_t t = 0; t < 6; ++t) {
    const double r = std::exp(c.logprobs[t] - c.old[t]);
    expected += Clip(r, c.advantage[t], 0.2, 0.28) / 6;
    low += c.advantage[t] < 0 && r<0.8, high += c.advantage[t]> 0 && r > 1.28;
  }
  const LossOutput out = Loss(options, c.Values(), kScale);
  CHECK(out.loss.item<double>() == Approx(expected));
  CHECK((out.sums.clip_low == low && low == 1));
  CHECK((out.sums.clip_high == high && high == 1));
  // Where the clip binds there is no gradient; elsewhere it is -r A / T.
  const std::vector<double> g = Gradients(options, c);
  CHECK(g[0] == 0);                                // r = e^0.3, A > 0
  CHECK(g[1] == Approx(-1.5 / 6));                 // r = 1
  CHECK(g[2] == 0);                                // r = e^-0.4, A < 0
  CHECK(g[4] == Approx(0.7 * std::exp(0.4) / 6));  // too likely and bad: not clipped
}

TEST_CASE("dual clip bounds what a bad token that became likely may cost") {
  LossOptions options = Plain(Surrogate::kClip);
  options.dual_clip = 3;
  Case c;
  c.logprobs[5] = c.old[5] + 2;  // r = 7.4, A = -2: -rA = 14.8, bound 6
  const double without = LossAt(Plain(Surrogate::kClip), c);
  CHECK(without - LossAt(options, c) == Approx((2 * std::exp(2.0) - 6) / 6));
  CHECK(Gradients(options, c)[5] == 0);
  CHECK(Gradients(options, Case())[5] == Approx(2 * std::exp(0.2) / 6));
}

TEST_CASE("sequence clip: one ratio a sequence, the geometric mean") {
  LossOptions options = Plain(Surrogate::kSequenceClip);
  options.normaliser = Normaliser::kSequenceMean;
  options.clip_low = 0.02, options.clip_high = 0.3;
  const double ratios[] = {std::exp(0.3 / 2), std::exp((-0.4 + 0.1 + 0.4) / 3), std::exp(0.2)};
  const double advantages[] = {1.5, -0.7, -2.0};
  double expected = 0;
  for (int i = 0; i < 3; ++i) expected += Clip(ratios[i], advantages[i], 0.02, 0.3) / 3;
  CHECK(LossAt(options, Case()) == Approx(expected));
  // All tokens of a sequence share its gradient: -r A / (B length).
  CHECK(Gradients(options, Case())[0] == Approx(-ratios[0] * 1.5 / 6));
  CHECK(Gradients(options, Case())[1] == Approx(-ratios[0] * 1.5 / 6));
}

TEST_CASE("cispo: the bounded ratio is a weight, not something to differentiate") {
  LossOptions options = Plain(Surrogate::kCispo);
  options.clip_high = 0.2;
  const Case c;
  double expected = 0;
  for (size_t t = 0; t < 6; ++t) {
    const double r = std::min(1.2, std::exp(c.logprobs[t] - c.old[t]));
    expected -= r * c.advantage[t] * c.logprobs[t] / 6;
    CHECK(Gradients(options, c)[t] == Approx(-r * c.advantage[t] / 6));
  }
  CHECK(LossAt(options, c) == Approx(expected));
}

TEST_CASE("reinforce and cross-entropy") {
  const Case c;
  double reinforce = 0, imitation = 0;
  for (size_t t = 0; t < 6; ++t) {
    reinforce -= c.advantage[t] * c.logprobs[t] / 6;
    imitation -= c.logprobs[t] / 6;
  }
  CHECK(LossAt(Plain(Surrogate::kReinforce), c) == Approx(reinforce));
  CHECK(LossAt(Plain(Surrogate::kCrossEntropy), c) == Approx(imitation));
}

TEST_CASE("normalisers: how much each token counts") {
  LossOptions options = Plain(Surrogate::kCrossEntropy);
  options.constant_tokens = 50;
  const Case c;
  const auto check = [&](Normaliser normaliser, const std::function<double(size_t)>& weight) {
    options.normaliser = normaliser;
    double expected = 0;
    const std::vector<double> gradients = Gradients(options, c);
    for (size_t t = 0; t < 6; ++t) {
      expected -= weight(t) * c.logprobs[t];
      CHECK(gradients[t] == Approx(-weight(t)));
    }
    CHECK(LossAt(options, c) == Approx(expected));
  };
  check(Normaliser::kTokenMean, [](size_t) { return 1 / 6.0; });
  check(Normaliser::kSequenceMean, [&](size_t t) { return 1 / (3 * c.Length(t)); });
  check(Normaliser::kSequenceSum, [](size_t) { return 1 / 3.0; });
  check(Normaliser::kConstant, [](size_t) { return 1 / 150.0; });
}

TEST_CASE("parts of an update add up to the whole") {
  LossOptions options;
  options.correction = Correction::kTruncate;
  options.kl = KlEstimator::kK3, options.kl_weight = 0.3, options.entropy_weight = 0.1;
  for (const Normaliser normaliser :
       {Normaliser::kTokenMean, Normaliser::kSequenceMean, Normaliser::kSequenceSum, Normaliser::kConstant}) {
    options.normaliser = normaliser;
    const TokenValues all = Case().Values();
    const auto part = [&](int64_t from, int64_t count, int64_t first, int64_t sequences) {
      const auto cut = [&](const at::Tensor& t) { return t.narrow(0, from, count); };
      return TokenValues{cut(all.logprobs),         cut(all.entropy),   cut(all.old),
                         cut(all.sampler),          cut(all.reference), cut(all.advantage),
                         cut(all.sequence) - first, sequences};
    };
    const LossOutput whole = Loss(options, all, kScale);
    LossSums sums = Loss(options, part(0, 2, 0, 1), kScale).sums;
    sums.Add(Loss(options, part(2, 4, 1, 2), kScale).sums);
    CHECK(sums.loss == Approx(whole.loss.item<double>()));
    CHECK(sums.kl == Approx(whole.sums.kl));
    CHECK(sums.weights == Approx(whole.sums.weights));
    CHECK((sums.tokens == 6 && sums.clip_high == whole.sums.clip_high));
  }
}

TEST_CASE("corrections between sampler and trainer") {
  // o - s = {-0.1, 0.4, 0, -0.1, -0.7, 2}
  LossOptions options = Plain(Surrogate::kReinforce);
  const Case c;
  const auto expect = [&](std::vector<double> weights) {
    double loss = 0, sum = 0, dropped = 0;
    for (size_t t = 0; t < 6; ++t) {
      loss -= weights[t] * c.advantage[t] * c.logprobs[t] / 6;
      sum += weights[t], dropped += weights[t] == 0;
    }
    const LossOutput out = Loss(options, c.Values(), kScale);
    CHECK(out.loss.item<double>() == Approx(loss));
    CHECK(out.sums.weights == Approx(sum));
    CHECK(out.sums.dropped == dropped);
  };
  options.correction = Correction::kTruncate, options.correction_high = 1.2;
  expect({std::exp(-0.1), 1.2, 1, std::exp(-0.1), std::exp(-0.7), 1.2});
  options.correction = Correction::kMask, options.correction_low = 0.6;
  expect({std::exp(-0.1), 0, 1, std::exp(-0.1), 0, 0});
  // Geometric means: e^0.15, e^-0.267, e^2.
  options.correction = Correction::kSequenceMask, options.correction_low = 0.9;
  expect({1, 1, 0, 0, 0, 0});
  options.correction_low = 0.5, options.correction_high = 10;
  expect({1, 1, 1, 1, 1, 1});
  Case hopeless;
  hopeless.old[3] = hopeless.sampler[3] - 9.3;  // below 1e-4
  options.correction_low = 0, options.correction_high = 100;
  CHECK(Loss(options, hopeless.Values(), kScale).sums.dropped == 3);
}

TEST_CASE("kl estimators: closed forms") {
  const Case c;
  for (const KlEstimator kl : {KlEstimator::kK1, KlEstimator::kK2, KlEstimator::kK3}) {
    LossOptions options = Plain(Surrogate::kReinforce);
    const double without = LossAt(options, c);
    options.kl = kl, options.kl_weight = 0.25;
    double expected = without;
    for (size_t t = 0; t < 6; ++t) {
      const double x = c.reference[t] - c.logprobs[t];
      expected += 0.25 / 6 *
                  (kl == KlEstimator::kK1   ? -x
                   : kl == KlEstimator::kK2 ? x * x / 2
                                            : std::exp(x) - x - 1);
    }
    CHECK(LossAt(options, c) == Approx(expected));
  }
}

TEST_CASE("entropy bonus: more entropy, less loss") {
  LossOptions options = Plain(Surrogate::kReinforce);
  const double without = LossAt(options, Case());
  options.entropy_weight = 0.5;
  CHECK(without - LossAt(options, Case()) == Approx(0.5 * 4.6 / 6));
}

TEST_CASE("preferences: the logistic loss of the margin") {
  LossOptions options;
  options.surrogate = Surrogate::kPreference;
  options.preference_beta = 0.4;
  Case c;
  c.sequence = {0, 0, 1, 2, 2, 3};
  TokenValues values = c.Values();
  values.sequences = 4;
  // Gains l - f: 0: -0.2 + 0.1, 1: 0.2, 2: 0.2 - 0.5, 3: 0
  const double margins[] = {0.4 * (-0.1 - 0.2), 0.4 * (-0.3 - 0.0)};
  double expected = 0;
  for (const double m : margins) expected += std::log1p(std::exp(-m)) / 2;
  const LossOutput out = Loss(options, values, {4, 6});
  CHECK(out.loss.item<double>() == Approx(expected));
  CHECK((out.sums.pairs == 2 && out.sums.preferred == 0));
  CHECK(out.sums.margins == Approx(margins[0] + margins[1]));
  values.logprobs.requires_grad_(true);
  Loss(options, values, {4, 6}).loss.backward();
  const double slope = 0.4 / (1 + std::exp(margins[0])) / 2;
  CHECK(At(values.logprobs.grad(), 0) == Approx(-slope));  // up with the chosen one
  CHECK(At(values.logprobs.grad(), 2) == Approx(slope));   // down with the other
}

TEST_CASE("gradients agree with finite differences, every part at once") {
  for (const Surrogate surrogate :
       {Surrogate::kClip, Surrogate::kSequenceClip, Surrogate::kReinforce, Surrogate::kCrossEntropy}) {
    for (const KlEstimator kl : {KlEstimator::kK1, KlEstimator::kK2, KlEstimator::kK3}) {
      for (const Normaliser normaliser : {Normaliser::kTokenMean, Normaliser::kSequenceMean}) {
        LossOptions options = Plain(surrogate);
        options.normaliser = normaliser;
        options.kl = kl, options.kl_weight = 0.3;
        options.correction = Correction::kMask, options.correction_low = 0.1, options.correction_high = 3;
        CheckAgainstDifferences(options);
      }
    }
  }
}

// ---- Log-probabilities in pieces ----

struct Head {
  at::Tensor weight;
  at::Tensor operator()(const at::Tensor& rows) const { return at::linear(rows, weight); }
};

TEST_CASE("log-probabilities in pieces equal those of all logits at once, backwards too") {
  at::manual_seed(3);
  const at::Tensor start = at::randn({7, 5}), weights = at::randn({11, 5});
  const at::Tensor targets = Integers({3, 0, 10, 5, 5, 1, 7});
  const at::Tensor temperatures = at::tensor(std::vector<float>{1, 0.9f, 0.5f, 1, 2, 0.9f, 1});
  const at::Tensor to_logprobs = at::randn({7}), to_entropy = at::randn({7});
  for (const bool with_entropy : {false, true}) {
    at::Tensor hidden = start.to(at::kDouble).detach().requires_grad_(true);
    at::Tensor weight = weights.to(at::kDouble).detach().requires_grad_(true);
    const at::Tensor all = at::log_softmax(at::linear(hidden, weight) / temperatures.unsqueeze(1), 1);
    const at::Tensor expected = all.gather(1, targets.unsqueeze(1)).squeeze(1);
    const at::Tensor entropy = -(all.exp() * all).sum(1);
    at::Tensor total = (expected * to_logprobs).sum();
    if (with_entropy) total = total + (entropy * to_entropy).sum();
    total.backward();
    for (const int64_t rows : {1, 3, 7, 100}) {
      at::Tensor h = start.detach().clone().requires_grad_(true);
      at::Tensor w = weights.detach().clone().requires_grad_(true);
      const TokenLogprobs out = LogprobsOf(h, Head{w}, targets, temperatures, rows, with_entropy);
      CHECK(at::allclose(out.logprobs.to(at::kDouble), expected, 1e-5, 1e-5));
      CHECK(out.entropy.defined() == with_entropy);
      at::Tensor sum = (out.logprobs * to_logprobs).sum();
      if (with_entropy) {
        CHECK(at::allclose(out.entropy.to(at::kDouble), entropy, 1e-5, 1e-5));
        sum = sum + (out.entropy * to_entropy).sum();
      }
      sum.backward();
      CHECK(at::allclose(h.grad().to(at::kDouble), hidden.grad(), 1e-4, 1e-5));
      CHECK(at::allclose(w.grad().to(at::kDouble), weight.grad(), 1e-4, 1e-5));
    }
  }
}

TEST_CASE("log-probabilities without gradients are the same numbers") {
  at::manual_seed(4);
  const at::Tensor hidden = at::randn({6, 4}), weight = at::randn({9, 4});
  const at::Tensor targets = Integers({1, 2, 3, 4, 5, 6}), ones = at::ones({6});
  const TokenLogprobs frozen = LogprobsOf(hidden, Head{weight}, targets, ones, 4, true);
  CHECK_FALSE(frozen.logprobs.requires_grad());
  const at::Tensor learning = hidden.detach().clone().requires_grad_(true);
  const TokenLogprobs live = LogprobsOf(learning, Head{weight}, targets, ones, 4, true);
  CHECK(live.logprobs.requires_grad());
  CHECK(at::equal(frozen.logprobs, live.logprobs.detach()));
  CHECK(at::equal(frozen.entropy, live.entropy.detach()));
}

}  // namespace
}  // namespace kevin::local
