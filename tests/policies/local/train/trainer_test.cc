// Steps of training on a tiny model: what must not change them (packing, cutting) and what must.

#include "policies/local/train/trainer.h"

#include <c10/core/GradMode.h>

#include <cmath>
#include <limits>

#include "env/error.h"
#include "policies/local/train/token_logprobs.h"
#include "tests/policies/local/train/trainer_fixture.h"

namespace kevin::local {
namespace {

TEST_CASE("a step does not depend on how samples are packed and logits are cut") {
  TrainOptions options = Options();
  const Trained pieces = Train(options, 3);
  options.micro_tokens = 100000, options.logits_tokens = 100000;
  const Trained whole = Train(options, 3);
  options.micro_tokens = 1;
  const Trained single = Train(options, 3);
  CHECK(Gap(pieces.weights, whole.weights) < 2e-6);
  CHECK(Gap(single.weights, whole.weights) < 2e-6);
  CHECK(pieces.figures[2].loss == Approx(whole.figures[2].loss).epsilon(1e-4));
  CHECK(pieces.figures[2].tokens == whole.figures[2].tokens);
  const auto fresh = TinyModel(1);
  CHECK(Gap(whole.weights, Flat(*fresh)) > 1e-2);  // and it learns something
}

TEST_CASE("a step with nothing to learn from counts, where it may, and changes nothing") {
  const auto model = TinyModel(1);
  const auto alone = OneRank();
  Trainer trainer(Options(), *model, nullptr, *alone);
  trainer.Step(MakeBatch(1));
  const at::Tensor before = Flat(*model);
  Batch idle = MakeBatch(2);
  for (Sample& sample : idle.samples) sample.masked = true;
  CHECK_THROWS_AS(trainer.Step(idle), Error);
  idle.may_be_idle = true;
  const StepFigures figures = trainer.Step(idle);
  CHECK((figures.updates == 0 && std::isnan(figures.loss) && std::isnan(figures.grad_norm)));
  CHECK(Gap(Flat(*model), before) == 0);
  CHECK(trainer.StepsDone() == 2);
  CHECK(trainer.Step(MakeBatch(3)).updates == 2);
}

TEST_CASE("from the base each step is as if it were the first") {
  TrainOptions options = Options();
  options.from_base = true;
  const auto model = TinyModel(1);
  const auto alone = OneRank();
  Trainer trainer(options, *model, nullptr, *alone);
  Batch batch = MakeBatch(1);
  trainer.Step(batch);
  const at::Tensor once = Flat(*model);
  trainer.Step(MakeBatch(2));
  CHECK(Gap(Flat(*model), once) > 1e-3);
  // The order of updates follows from the step's number; with one update there is none.
  options.updates_per_step = 1;
  const auto one = TinyModel(1), other = TinyModel(1);
  Trainer first(options, *one, nullptr, *alone), second(options, *other, nullptr, *alone);
  first.Step(batch);
  second.Step(MakeBatch(1));
  batch.step = 2;
  second.Step(batch);
  CHECK(Gap(Flat(*one), Flat(*other)) < 1e-6);
}

// One update written out with plain autograd over single sequences.
TEST_CASE("an update equals gradients of the formula and AdamW's closed form") {
  TrainOptions options = Options();
  options.updates_per_step = 1, options.adam.weight_decay = 0.1, options.adam.max_grad_norm = 0.05;
  options.schedule = {1e-2, Decay::kConstant, 0, 0};
  const auto model = TinyModel(1), other = TinyModel(1);
  const auto alone = OneRank();
  Trainer trainer(options, *model, nullptr, *alone);
  const Batch batch = MakeBatch(1);
  const StepFigures figures = trainer.Step(batch);

  double tokens = 0;
  for (const Sample& s : batch.samples) tokens += static_cast<double>(s.completion.size());
  at::Tensor loss = at::zeros({});
  for (const Sample& s : batch.samples) {
    std::vector<int64_t> ids(s.prompt.begin(), s.prompt.end());
    ids.insert(ids.end(), s.completion.begin(), s.completion.end());
    const auto n = static_cast<int64_t>(ids.size());
    const at::Tensor all = at::tensor(ids, at::kLong);
    const at::Tensor hidden = other->Hidden({all, at::arange(n), {0, n}});
    const at::Tensor logprobs = at::log_softmax(other->Logits(hidden) / s.temperature, 1);
    for (int64_t t = static_cast<int64_t>(s.prompt.size()); t < n; ++t)
      loss = loss - s.advantage * logprobs[t - 1][ids[static_cast<size_t>(t)]] / tokens;
  }
  loss.backward();
  double squares = 0;
  for (const NamedParameter& p : other->Parameters()) squares += p.value.grad().square().sum().item<double>();
  CHECK(figures.grad_norm == Approx(std::sqrt(squares)).epsilon(1e-5));
  // After one step both moments are (1 - beta) g, so the update is lr g / (|g| + eps); matrices decay first.
  std::vector<at::Tensor> expected;
  for (const NamedParameter& p : other->Parameters()) {
    const at::Tensor g = p.value.grad() * (0.05 / (std::sqrt(squares) + 1e-6));
    const double decay = p.value.dim() > 1 ? 1 - 1e-2 * 0.1 : 1;
    expected.push_back((p.value.detach() * decay - 1e-2 * g / (g.abs() + 1e-8)).reshape(-1));
  }
  CHECK(Gap(Flat(*model), at::cat(expected)) < 1e-5);
}

TEST_CASE("the second update is off-policy: ratios move and clip") {
  TrainOptions options = Options();
  options.schedule = {0.3, Decay::kConstant, 0, 0};
  const StepFigures two = Train(options, 1).figures[0];
  CHECK(two.updates == 2);
  CHECK(two.policy_shift > 1e-3);
  CHECK(two.clip_low + two.clip_high > 0);
  options.updates_per_step = 1;
  const StepFigures one = Train(options, 1).figures[0];
  CHECK(one.policy_shift == 0);
  CHECK(one.clip_low + one.clip_high == 0);
}

// As a sampler records them whose log-probabilities are all `gap` below the model's.
void RecordLogprobs(LanguageModel& model, float gap, std::vector<Sample>* samples) {
  for (Sample& s : *samples) {
    const Sample* one[] = {&s};
    const c10::NoGradGuard no_gradients;
    const at::Tensor own = CompletionLogprobs(model, PackSamples(one, at::kCPU), 100, false).logprobs;
    for (size_t t = 0; t < s.completion.size(); ++t)
      s.sampler_logprobs[t] = own[static_cast<int64_t>(t)].item<float>() - gap;
  }
}

TEST_CASE("the gap to the sampler is measured before the step") {
  const auto model = TinyModel(1);
  Batch batch = MakeBatch(1);
  RecordLogprobs(*model, 0.125f, &batch.samples);
  batch.samples[3].sampler_logprobs[1] -= 0.5f;
  TrainOptions options = Options();
  options.schedule = {0.3, Decay::kConstant, 0, 0};  // a great change within the step
  options.loss.correction = Correction::kTruncate;
  const auto alone = OneRank();
  Trainer trainer(options, *model, nullptr, *alone);
  const StepFigures figures = trainer.Step(batch);
  const double n = static_cast<double>(figures.trained_tokens);
  CHECK(figures.delta_logprob == Approx(0.125 + 0.5 / n).epsilon(1e-4));
  CHECK(figures.delta_logprob_max == Approx(0.625).epsilon(1e-4));
  CHECK(figures.correction_mean == Approx(((n - 1) * std::exp(0.125) + std::exp(0.625)) / n).epsilon(1e-4));
}

TEST_CASE("where the trained tokens do not tell the gap to the sampler, probes do") {
  TrainOptions options = Options();
  options.schedule = {0.3, Decay::kConstant, 0, 0};
  const auto model = TinyModel(1), reference = TinyModel(2);
  const auto alone = OneRank();
  Batch batch = MakeBatch(1);
  batch.unit = 2, batch.probes = MakeBatch(1).samples;
  SECTION("of imitation, also from the base, whose weights the turns of a later step do not come from") {
    options.loss.surrogate = Surrogate::kCrossEntropy, options.from_base = true;
  }
  SECTION("of preferences") { options.loss.surrogate = Surrogate::kPreference; }
  SECTION("of a step that learns nothing") { batch.samples.clear(), batch.may_be_idle = true; }
  SECTION("of advantages that are all 0, by the samples themselves") {
    batch.probes.clear();
    for (Sample& sample : batch.samples) sample.advantage = 0;
  }
  Trainer trainer(options, *model, reference.get(), *alone);
  for (batch.step = 1; batch.step <= 2; ++batch.step) {
    RecordLogprobs(*model, 0.125f, batch.probes.empty() ? &batch.samples : &batch.probes);
    const StepFigures figures = trainer.Step(batch);
    CHECK(figures.delta_logprob == Approx(0.125).epsilon(1e-4));
    CHECK(figures.delta_logprob_max == Approx(0.125).epsilon(1e-4));
    CHECK((figures.tokens > 0) == (figures.grad_norm > 0));  // a probe teaches nothing
  }
  const auto fresh = TinyModel(1);
  options.gap_limit = 0.1;
  Trainer strict(options, *fresh, reference.get(), *alone);
  RecordLogprobs(*fresh, 0.125f, batch.probes.empty() ? &batch.samples : &batch.probes);
  batch.step = 1;
  CHECK_THROWS_WITH(strict.Step(batch), Catch::Contains("differ by 0.125 a token, above the limit of 0.1"));
  CHECK(at::equal(Flat(*fresh), Flat(*TinyModel(1))));
}

TEST_CASE(
    "probes are bounded by their number and by one forward pass; without log-probabilities there is no gap") {
  TrainOptions options = Options();
  options.loss.surrogate = Surrogate::kCrossEntropy;
  const auto alone = OneRank();
  Batch batch = MakeBatch(1);
  const auto step = [&](int64_t micro_tokens) {
    options.micro_tokens = micro_tokens;
    const auto model = TinyModel(1);
    return Trainer(options, *model, nullptr, *alone).Step(batch);
  };
  for (size_t i = 0; i <= kMostProbes; ++i) batch.probes.push_back(batch.samples[i % 4]);
  RecordLogprobs(*TinyModel(1), 0, &batch.probes);
  for (float& logprob : batch.probes[kMostProbes].sampler_logprobs) logprob -= 50;
  CHECK(step(1000).delta_logprob < 1e-5);  // without the last one
  for (float& logprob : batch.probes[8].sampler_logprobs) logprob -= 50;
  CHECK(step(1000).delta_logprob > 1);
  CHECK(step(1).delta_logprob < 1e-5);  // the longest one alone
  for (Sample& probe : batch.probes) probe.sampler_logprobs.clear();
  CHECK(std::isnan(step(1000).delta_logprob));
}

TEST_CASE("a step whose turns come from another policy is an error before it teaches anything") {
  const auto model = TinyModel(1);
  const auto alone = OneRank();
  TrainOptions options = Options();
  options.loss.correction = Correction::kTruncate, options.gap_limit = 5;
  Trainer trainer(options, *model, nullptr, *alone);
  const double gap = trainer.Step(MakeBatch(1)).delta_logprob;
  CHECK(gap > 0.01);
  options.gap_limit = gap / 2;
  Trainer strict(options, *model, nullptr, *alone);
  const at::Tensor before = Flat(*model);
  CHECK_THROWS_WITH(strict.Step(MakeBatch(1)), Catch::Contains("not one policy"));
  CHECK(at::equal(Flat(*model), before));
}

TEST_CASE("masked samples teach nothing; those without an advantage only dilute") {
  Batch batch = MakeBatch(1);
  const auto weights_after = [](const Batch& b) {
    TrainOptions options = Options();
    options.updates_per_step = 1, options.schedule = {1e-2, Decay::kConstant, 0, 0};
    options.adam.epsilon = 1;  // then the size of a gradient matters
    const auto model = TinyModel(1);
    const auto alone = OneRank();
    Trainer trainer(options, *model, nullptr, *alone);
    trainer.Step(b);
    return Flat(*model);
  };
  Batch without = batch;
  without.samples.erase(without.samples.begin() + 4);
  const at::Tensor plain = weights_after(without);
  Batch masked = batch;
  masked.samples[4].masked = true;
  CHECK(Gap(weights_after(masked), plain) < 1e-6);
  Batch neutral = batch;
  neutral.samples[4].advantage = 0;
  CHECK(Gap(weights_after(neutral), plain) > 1e-6);
  CHECK(Gap(weights_after(batch), plain) > 1e-6);
}

TEST_CASE("what is not finite stops the run, names the step and leaves the weights alone") {
  const auto model = TinyModel(1);
  const auto alone = OneRank();
  TrainOptions options = Options();
  options.updates_per_step = 1;
  Trainer trainer(options, *model, nullptr, *alone);
  trainer.Step(MakeBatch(1));
  const at::Tensor before = Flat(*model);
  Batch poisoned = MakeBatch(2);
  poisoned.samples[5].advantage = std::numeric_limits<float>::infinity();
  std::string what;
  try {
    trainer.Step(poisoned);
  } catch (const Error& error) {
    what = error.what();
    CHECK(error.code() == ExitCode::kBroken);
    CHECK(std::string(error.next_step()).find("--resume") != std::string::npos);
  }
  CHECK(what.find("step 2, update 1 of 1") != std::string::npos);
  CHECK(at::equal(Flat(*model), before));
}

TEST_CASE("a batch that does not fit is refused") {
  const auto model = TinyModel(1);
  const auto alone = OneRank();
  TrainOptions options = Options();
  options.loss.correction = Correction::kTruncate;
  Trainer trainer(options, *model, nullptr, *alone);
  Batch batch = MakeBatch(1);
  batch.samples[2].sampler_logprobs.clear();
  CHECK_THROWS_WITH(trainer.Step(batch), Catch::Contains("without the log-probabilities"));
  batch = MakeBatch(1);
  for (Sample& s : batch.samples) s.masked = true;
  CHECK_THROWS_WITH(trainer.Step(batch), Catch::Contains("nothing to train on"));
  CHECK_THROWS_WITH(trainer.Step(MakeBatch(2)), Catch::Contains("does not follow"));
}

TEST_CASE("preferences: chosen answers become likelier than rejected ones, and pairs stay together") {
  TrainOptions options = Options();
  options.loss.surrogate = Surrogate::kPreference, options.updates_per_step = 1;
  options.schedule = {1e-2, Decay::kConstant, 0, 0};
  options.steps = 30, options.micro_tokens = 12;
  const auto model = TinyModel(1), reference = TinyModel(1);
  const auto alone = OneRank();
  Trainer trainer(options, *model, reference.get(), *alone);
  Batch batch = MakeBatch(1);
  batch.unit = 2;
  StepFigures first, last;
  for (int64_t s = 1; s <= 30; ++s) {
    batch.step = s;
    last = trainer.Step(batch);
    if (s == 1) first = last;
  }
  CHECK(first.loss == Approx(std::log(2.0)).epsilon(1e-5));
  CHECK(first.preference_margin == Approx(0).margin(1e-6));
  CHECK(last.loss < 0.6);
  CHECK(last.preference_accuracy == 1);
}

TEST_CASE("imitation brings the loss down to what can be known") {
  TrainOptions options = Options();
  options.loss.surrogate = Surrogate::kCrossEntropy, options.updates_per_step = 1;
  options.schedule = {3e-2, Decay::kConstant, 0, 0};
  options.steps = 150;
  const auto model = TinyModel(1);
  const auto alone = OneRank();
  Trainer trainer(options, *model, nullptr, *alone);
  Batch batch = MakeBatch(1);
  batch.samples.resize(3);
  double first = 0, last = 0;
  for (int64_t s = 1; s <= 150; ++s) {
    batch.step = s;
    last = trainer.Step(batch).loss;
    if (s == 1) first = last;
  }
  CHECK(first > 2);
  CHECK(last < 0.5);
}

}  // namespace
}  // namespace kevin::local
