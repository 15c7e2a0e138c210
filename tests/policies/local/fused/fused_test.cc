// Our decoding kernels beside torch's operators, on a GPU: the same model, the same tokens.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <map>
#include <numeric>

#include "policies/local/fused/fused_runner.h"
#include "policies/local/generate/sampler.h"
#include "tests/catch.h"
#include "tests/policies/local/fused/has_gpu.h"

namespace kevin::local {
namespace {

using testing::HasGpu;
using testing::PrintFigure;

ModelConfig Shape(int hidden, int layers, int heads, int kv_heads, int head_dim, int ffn, bool qwen3) {
  ModelConfig config;
  config.family = qwen3 ? ModelFamily::kQwen3 : ModelFamily::kQwen2;
  config.hidden = hidden, config.layers = layers, config.heads = heads, config.kv_heads = kv_heads;
  config.head_dim = head_dim, config.ffn = ffn, config.vocabulary = 5003, config.context = 4096;
  config.qkv_bias = !qwen3, config.qk_norm = qwen3, config.tied_embeddings = !qwen3;
  return config;
}

struct Pair {
  std::unique_ptr<LanguageModel> model;
  std::unique_ptr<TorchRunner> torch;
  std::unique_ptr<FusedRunner> fused;
};

TorchRunnerOptions RunnerOptions() {
  TorchRunnerOptions options;
  options.pages = 600;
  options.page_tokens = 16;
  return options;
}

Pair MakePair(const ModelConfig& config) {
  ModelOptions options;
  options.device = at::Device(at::kCUDA, 0);
  Pair pair;
  pair.model = MakeRandomLanguageModel(config, options, 1);
  REQUIRE(FusedDecoder::WhyNot(*pair.model) == "");
  pair.torch = std::make_unique<TorchRunner>(*pair.model, RunnerOptions());
  pair.fused = std::make_unique<FusedRunner>(*pair.model, RunnerOptions());
  return pair;
}

// A sequence with pages scattered over the cache.
struct Sequence {
  std::vector<int32_t> tokens, pages;
  SequenceStep Step(int number, TokenSampling sampling = {.temperature = 0}) const {
    SequenceStep step;
    step.tokens = tokens, step.sequence = number, step.pages = pages, step.sample = true;
    step.sampling = sampling;
    return step;
  }
};

Sequence MakeSequence(int number, int length) {
  Sequence sequence;
  for (int i = 0; i < length; ++i) sequence.tokens.push_back((i * 7919 + number * 31 + 5) % 5003);
  for (int i = 0; i < 140; ++i) sequence.pages.push_back((i * 4 + number) % 600);
  return sequence;
}

std::vector<SampledToken> Run(ModelRunner& runner, std::span<const SequenceStep> steps) {
  runner.Submit(steps);
  return runner.Wait();
}

}  // namespace

TEST_CASE("each decoded token is torch's, one row and several, at short and long contexts", "[gpu]") {
  if (!HasGpu()) return;
  const ModelConfig config =
      GENERATE(Shape(256, 3, 4, 2, 64, 512, false), Shape(896, 4, 14, 2, 64, 4864, false),
               Shape(1024, 3, 16, 4, 128, 3072, true), Shape(1536, 2, 12, 2, 128, 8960, false));
  const int rows = GENERATE(1, 3, 40);
  const Pair pair = MakePair(config);
  std::vector<Sequence> sequences;
  for (int r = 0; r < rows; ++r) sequences.push_back(MakeSequence(r % 4, r == 0 ? 2000 : 3 + 37 * r));
  if (rows > 4) {  // pages of their own for so many
    for (int r = 0; r < rows; ++r) {
      sequences[r] = MakeSequence(r, r == 0 ? 190 : 3 + 4 * r);
      sequences[r].pages.resize(14);
      for (int i = 0; i < 14; ++i) sequences[r].pages[i] = r * 14 + i;
    }
  }
  std::vector<int32_t> forced;
  for (int r = 0; r < rows; ++r) {
    const SequenceStep step = sequences[r].Step(r);
    Run(*pair.torch, {&step, 1});
    forced.push_back(Run(*pair.fused, {&step, 1}).front().id);
  }
  int same = 0, all = 0;
  double worst = 0;
  for (int turn = 0; turn < 12; ++turn) {
    std::vector<SequenceStep> steps;
    for (int r = 0; r < rows; ++r) {
      SequenceStep step = sequences[r].Step(r);
      step.position = static_cast<int>(sequences[r].tokens.size()) + turn;
      step.tokens = {&forced[r], 1};
      steps.push_back(step);
    }
    const auto theirs = Run(*pair.torch, steps), ours = Run(*pair.fused, steps);
    for (int r = 0; r < rows; ++r) {
      ++all;
      same += ours[r].id == theirs[r].id;
      if (ours[r].id == theirs[r].id)
        worst = std::max(worst, std::abs(1.0 * ours[r].model_logprob - theirs[r].model_logprob));
      forced[r] = theirs[r].id;
    }
  }
  PrintFigure(
      fmt::format("decode   hidden {}, {} rows: {} of {} tokens are torch's, log-probabilities within {:.4f}",
                  config.hidden, rows, same, all, worst));
  INFO(same << " of " << all << " tokens equal, log-probabilities within " << worst);
  CHECK(same >= 0.9 * all);  // in bfloat16 the greatest two logits are often equal but for rounding
  CHECK(worst <= 0.0625);    // two roundings of a logit between 4 and 8
}

namespace {

// A rank-one update of every matrix whose elements are below half of a bfloat16 step of most weights, but which
// changes outputs: inputs have a mean.
void Attach(LanguageModel& model) {
  const at::NoGradGuard no_gradients;
  model.GetWeights().embedding.add_(0.02);
  AdapterOptions options;
  options.rank = 4, options.alpha = 8;
  model.AttachAdapters(options, 1);
  for (NamedParameter& p : model.Parameters()) p.value.fill_(p.name.find("lora_A") != std::string::npos);
}

// 8 * B A gives every element `size`, with a sign for each row.
void SetUpdate(LanguageModel& model, double size) {
  const at::NoGradGuard no_gradients;
  for (NamedParameter& p : model.Parameters()) {
    if (p.name.find("lora_B") == std::string::npos) continue;
    const at::Tensor signs = at::arange(p.value.size(0), p.value.options()).mul(2.4).sin().sign();
    p.value.copy_((signs * (size / 8)).unsqueeze(1).expand_as(p.value));
  }
}

// The log-probabilities of the most likely tokens, each sequence forced along `path`; made here if empty.
std::vector<double> Follow(ModelRunner& runner, int rows, std::vector<std::vector<int32_t>>* path) {
  const bool is_new = path->empty();
  std::vector<double> logprobs;
  std::vector<Sequence> sequences;
  std::vector<int32_t> last;
  for (int r = 0; r < rows; ++r) {
    sequences.push_back(MakeSequence(r, 20 + 5 * r));
    const SequenceStep step = sequences.back().Step(r);
    last.push_back(Run(runner, {&step, 1}).front().id);
  }
  for (size_t turn = 0; turn < 25; ++turn) {
    if (is_new) path->push_back(last);
    std::vector<SequenceStep> steps;
    for (int r = 0; r < rows; ++r) {
      SequenceStep step = sequences[static_cast<size_t>(r)].Step(r);
      step.position = static_cast<int>(step.tokens.size() + turn);
      step.tokens = {&path->at(turn)[static_cast<size_t>(r)], 1};
      steps.push_back(step);
    }
    const auto drawn = Run(runner, steps);
    for (size_t r = 0; r < drawn.size(); ++r)
      last[r] = drawn[r].id, logprobs.push_back(drawn[r].model_logprob);
  }
  return logprobs;
}

}  // namespace

TEST_CASE("an update too small for bfloat16 weights reaches the decoded distribution", "[gpu]") {
  if (!HasGpu()) return;
  const ModelConfig config =
      GENERATE(Shape(896, 4, 14, 2, 64, 4864, false), Shape(1024, 3, 16, 4, 128, 3072, true));
  const int rows = GENERATE(1, 4);
  ModelOptions options;
  options.device = at::Device(at::kCUDA, 0);
  const auto model = MakeRandomLanguageModel(config, options, 1);
  Attach(*model);
  SetUpdate(*model, 0);
  TorchRunner torch(*model, RunnerOptions());
  FusedRunner fused(*model, RunnerOptions());
  std::vector<std::vector<int32_t>> path;
  const std::vector<double> torch_before = Follow(torch, rows, &path), before = Follow(fused, rows, &path);
  // The greatest of them shows that the kernels compute what torch does, the smallest that nothing is rounded away.
  for (const double size : {2.5e-5, 2e-4}) {
    SetUpdate(*model, size);
    if (size > 1e-4) fused.GiveUpCache();
    fused.WeightsChanged();
    const std::vector<double> torch_after = Follow(torch, rows, &path), after = Follow(fused, rows, &path);
    double product = 0, square = 0, gap = 0;
    for (size_t i = 0; i < after.size(); ++i) {
      const double change = torch_after[i] - torch_before[i];
      product += change * (after[i] - before[i]), square += change * change;
      gap += std::abs(after[i] - torch_after[i]) / static_cast<double>(after.size());
    }
    PrintFigure(fmt::format(
        "adapters hidden {}, {} rows, elements of {:g}: {:.2f} of the change is decoded, gap {:.4f}",
        config.hidden, rows, size, product / square, gap));
    INFO("rows " << rows << ", elements of " << size << ": change of log-probabilities "
                 << std::sqrt(square / static_cast<double>(after.size())) << ", of which " << product / square
                 << " is decoded; mean gap to torch " << gap);
    CHECK(square > 0);
    CHECK(product / square > 0.7);
    CHECK(product / square < 1.3);
    CHECK(gap < 0.03);
  }
}

TEST_CASE("steps in flight give what single steps give, and the draws of the sampler's rule", "[gpu]") {
  if (!HasGpu()) return;
  const Pair pair = MakePair(Shape(1024, 3, 16, 4, 128, 3072, true));
  const TokenSampling sampling{.temperature = 0.7f, .seed = 11};
  const auto generate = [&](int rows, bool pipelined) {
    std::vector<Sequence> sequences;
    std::vector<std::vector<SampledToken>> tokens(rows);
    for (int r = 0; r < rows; ++r) {
      sequences.push_back(MakeSequence(r, 20 + r));
      const SequenceStep step = sequences[r].Step(r, sampling);
      tokens[r].push_back(Run(*pair.fused, {&step, 1}).front());
    }
    const int kTurns = 30;
    std::vector<int32_t> last(rows);
    for (int turn = 0; turn < kTurns; ++turn) {
      std::vector<SequenceStep> steps;
      for (int r = 0; r < rows; ++r) {
        SequenceStep step = sequences[r].Step(r, sampling);
        step.position = 20 + r + turn;
        last[r] = tokens[r].back().id;
        step.tokens = {&last[r], pipelined && turn > 0 ? 0U : 1U};
        steps.push_back(step);
      }
      pair.fused->Submit(steps);
      if (pipelined && turn == 0) continue;  // from here on one step stays in flight
      const auto drawn = pair.fused->Wait();
      for (int r = 0; r < rows; ++r) tokens[r].push_back(drawn[r]);
    }
    if (pipelined) {
      const auto drawn = pair.fused->Wait();
      for (int r = 0; r < rows; ++r) tokens[r].push_back(drawn[r]);
    }
    return tokens;
  };
  for (const int rows : {1, 3}) {
    const auto single = generate(rows, false), pipelined = generate(rows, true);
    for (int r = 0; r < rows; ++r) {
      std::vector<int32_t> a, b;
      for (const SampledToken& token : single[r]) a.push_back(token.id);
      for (const SampledToken& token : pipelined[r]) b.push_back(token.id);
      CHECK(a == b);
    }
  }

  // Torch's logits of the same states, drawn from by the CPU's sampler.
  const auto ours = generate(1, false).front();
  const Sequence sequence = MakeSequence(0, 20);
  int same = 0, apart = 0;
  double worst = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    SampledToken expected;
    const LogitsProcessor processor = [&](std::span<float> logits) {
      expected = Sample(logits, sampling, 20 + static_cast<int>(i));
    };
    SequenceStep step = sequence.Step(0, sampling);
    const int32_t token = i == 0 ? 0 : ours[i - 1].id;
    if (i > 0) step.position = 19 + static_cast<int>(i), step.tokens = {&token, 1};
    step.processor = &processor;
    Run(*pair.torch, {&step, 1});
    apart = std::max(apart, std::abs(expected.id - ours[i].id));
    if (expected.id != ours[i].id) continue;
    ++same;
    worst = std::max({worst, std::abs(1.0 * expected.logprob - ours[i].logprob),
                      std::abs(1.0 * expected.model_logprob - ours[i].model_logprob)});
  }
  INFO(same << " of " << ours.size() << " draws equal, the others up to " << apart
            << " places beside, log-probabilities within " << worst);
  // Thousands of tokens are about as likely here: rounding moves a draw to a neighbour now and then.
  CHECK(same >= 0.5 * static_cast<double>(ours.size()));
  CHECK(apart <= 5);
  CHECK(worst <= 0.0625);
}

}  // namespace kevin::local
