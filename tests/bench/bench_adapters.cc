// bench_adapters: what merging adapters into bfloat16 weights loses, what it costs not to, on random weights of
// published shapes.
//   lost     for updates of usual sizes: the part of scale * B A that rounding W + scale * B A to bfloat16 leaves out,
//            and the mean difference of log-probabilities between the trainer (weights and adapters) and a sampler
//            with merged weights, and one with adapters beside them (the decoder of the program);
//   speed    tokens a second with merged weights and with adapters beside them, one sequence and a batch.
// On a CPU in bfloat16 torch decodes: slowly, with the same differences. Each line is printed as it is known; parts that
// do not begin within --seconds are named, and counts of tokens are cut to the time left.

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

#include "env/error.h"
#include "env/process/machine.h"
#include "policies/local/fused/fused_runner.h"
#include "policies/local/model/apply_weights.h"
#include "tests/bench/model_shapes.h"

namespace kevin {
namespace {

using namespace local;
using Clock = std::chrono::steady_clock;

struct AdapterBench {
  std::string device = "cuda:0", shape = "1.5B";
  int rank = 32, tokens = 300, batch = 64, context = 256;
  double seconds = 400;
  Clock::time_point start = Clock::now();
  double Left() const { return seconds - SecondsSince(start); }
};

constexpr int kPage = 32, kPrompt = 24;

std::unique_ptr<LanguageModel> WithAdapters(const AdapterBench& options) {
  ModelOptions model;
  model.device = at::Device(options.device);
  auto made = MakeRandomLanguageModel(ShapeNamed(options.shape), model, 1);
  AdapterOptions adapters;
  adapters.rank = options.rank, adapters.alpha = 32;
  made->AttachAdapters(adapters, 1);
  return made;
}

// Adapters after `updates` steps of Adam, each of which moves a number by the learning rate in one direction.
void SetUpdated(LanguageModel& model, double rate, int updates) {
  const c10::NoGradGuard no_gradients;
  double phase = 0;
  for (NamedParameter& p : model.Parameters()) {
    if (p.name.find("lora_B") == std::string::npos) continue;
    const at::Tensor steps = at::arange(p.value.numel(), at::TensorOptions(at::kDouble)).add_(phase += 0.5);
    p.value.copy_(steps.mul(12.9898).sin().sign().mul(rate * updates).view(p.value.sizes()));
  }
}

// The part of the update that merged weights leave out: |merged - W - D| / |D| over all projections.
double LostByMerging(const LanguageModel& model) {
  const c10::NoGradGuard no_gradients;
  double lost = 0, all = 0;
  for (const Layer& layer : model.GetWeights().layers) {
    for (const Linear* linear : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down}) {
      for (const Projection& part : linear->parts) {
        const at::Tensor before = part.weight.to(at::kFloat),
                         update = AdapterProduct(part, linear->lora_scale);
        const at::Tensor merged = (before + update).to(at::kBFloat16).to(at::kFloat);
        lost += (merged - before - update).square().sum().item<double>();
        all += update.square().sum().item<double>();
      }
    }
  }
  return std::sqrt(lost / all);
}

TorchRunnerOptions RunnerOf(const AdapterBench& options) {
  TorchRunnerOptions runner;
  runner.page_tokens = kPage;
  runner.pages = options.batch * ((std::max(options.context, kPrompt) + options.tokens + 2 * kPage) / kPage);
  return runner;
}

std::vector<int32_t> PagesOf(const AdapterBench& options, int sequence) {
  const int each = RunnerOf(options).pages / options.batch;
  std::vector<int32_t> pages;
  for (int i = 0; i < each; ++i) pages.push_back(sequence * each + i);
  return pages;
}

// Mean |log-probability of the sampler - of `trainer`| over what the sampler draws.
double GapTo(LanguageModel& trainer, ModelRunner& sampler, const AdapterBench& options) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < kPrompt; ++i) tokens.push_back((i * 7919 + 13) % trainer.Config().vocabulary);
  const std::vector<int32_t> pages = PagesOf(options, 0);
  std::vector<float> drawn;
  int position = 0;
  for (int i = 0; i < options.tokens && (i == 0 || options.Left() > 0); ++i) {
    SequenceStep step;
    step.tokens = std::span(tokens).subspan(static_cast<size_t>(position));
    step.position = position, step.pages = pages, step.sample = true, step.sampling.seed = 3;
    position = static_cast<int>(tokens.size());
    sampler.Submit({&step, 1});
    const SampledToken token = sampler.Wait().front();
    tokens.push_back(token.id), drawn.push_back(token.logprob);
  }
  const c10::NoGradGuard no_gradients;
  const auto n = static_cast<int64_t>(tokens.size());
  const at::Device device = trainer.Options().device;
  const at::Tensor ids = at::tensor(std::vector<int64_t>(tokens.begin(), tokens.end()), at::kLong).to(device);
  const at::Tensor hidden = trainer.Hidden({ids, at::arange(n, ids.options()), {0, n}});
  const at::Tensor logprobs =
      at::log_softmax(trainer.Logits(hidden.narrow(0, kPrompt - 1, n - kPrompt)).to(at::kFloat), 1);
  const at::Tensor own =
      logprobs.gather(1, ids.narrow(0, kPrompt, n - kPrompt).unsqueeze(1)).squeeze(1).cpu();
  return (own - at::tensor(drawn, at::kFloat)).abs().mean().item<double>();
}

double TokensPerSecond(ModelRunner& runner, const AdapterBench& options, int batch) {
  constexpr int kWarmUp = 4;
  std::vector<std::vector<int32_t>> pages;
  std::vector<int32_t> first;
  for (int b = 0; b < batch; ++b) pages.push_back(PagesOf(options, b)), first.push_back(b + 1);
  int waiting = 0, done = 0;
  Clock::time_point start;
  for (int i = -kWarmUp; i < options.tokens && (i < 1 || options.Left() > 0); ++i, ++done) {
    if (i == 0) {
      for (; waiting > 0; --waiting) runner.Wait();
      start = Clock::now();
    }
    std::vector<SequenceStep> steps(static_cast<size_t>(batch));
    for (int b = 0; b < batch; ++b) {
      SequenceStep& step = steps[static_cast<size_t>(b)];
      if (i == -kWarmUp) step.tokens = {&first[static_cast<size_t>(b)], 1};
      step.sequence = b, step.position = options.context + std::max(i, 0);
      step.pages = pages[static_cast<size_t>(b)], step.sample = true,
      step.sampling.seed = static_cast<uint64_t>(b);
    }
    runner.Submit(steps);
    if (++waiting >= runner.GetShape().steps_in_flight) runner.Wait(), --waiting;
  }
  for (; waiting > 0; --waiting) runner.Wait();
  return batch * (done - kWarmUp) / SecondsSince(start);
}

void Measure(const AdapterBench& options) {
  const auto model = WithAdapters(options);
  std::unique_ptr<ModelRunner> beside = MakeModelRunner(*model, RunnerOf(options));
  std::printf("%s, adapters of rank %d: %s\n", options.shape.c_str(), options.rank,
              dynamic_cast<FusedRunner*>(beside.get()) ? "kernels of our own" : "torch's operators");
  for (const auto& [rate, updates] : {std::pair{2e-6, 2}, {2e-5, 20}, {1e-4, 80}}) {
    if (options.Left() <= 0) {
      std::printf("lost     %g x %d updates: left out after %.0f s\n", rate, updates, options.seconds);
      continue;
    }
    SetUpdated(*model, rate, updates);
    beside->WeightsChanged();
    const double gap = GapTo(*model, *beside, options);
    const auto merged = WithAdapters(options);
    SetUpdated(*merged, rate, updates);
    merged->MergeAdapters();
    const auto runner = MakeModelRunner(*merged, RunnerOf(options));
    std::printf(
        "lost     %g x %d updates: merging loses %.0f %% of the update; |dlogp| merged %.5f, beside %.5f\n",
        rate, updates, 100 * LostByMerging(*model), GapTo(*model, *runner, options), gap);
  }
  if (options.Left() <= 0) {
    std::printf("speed    left out after %.0f s\n", options.seconds);
    return;
  }
  ModelOptions plain;
  plain.device = at::Device(options.device);
  const auto base = MakeRandomLanguageModel(ShapeNamed(options.shape), plain, 1);
  const auto runner = MakeModelRunner(*base, RunnerOf(options));
  for (const int batch : {1, options.batch}) {
    if (options.Left() <= 0) {
      std::printf("speed    batch %d: left out after %.0f s\n", batch, options.seconds);
      break;
    }
    const double merged = TokensPerSecond(*runner, options, batch),
                 ours = TokensPerSecond(*beside, options, batch);
    std::printf("speed    batch %d, context %d: merged %.1f tokens/s, beside %.1f (%.1f %% less)\n", batch,
                options.context, merged, ours, 100 * (1 - ours / merged));
    if (options.batch == 1) break;
  }
}

int Main(int argc, char** argv) {
  AdapterBench options;
  CLI::App app("Adapters merged into the weights and beside them, on random weights of published shapes");
  app.add_option("--shape", options.shape, "25M, 0.5B, 1.5B, 7B or 32B")->capture_default_str();
  app.add_option("--device", options.device, "cpu or cuda:N")->capture_default_str();
  app.add_option("--rank", options.rank)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--tokens", options.tokens, "To decode")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--batch", options.batch, "Sequences at once")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--context", options.context)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--seconds", options.seconds, "No part begins after this time")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  try {
    Measure(options);
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "bench_adapters: %s\n  %s\n", error.what(), error.next_step().c_str());
    return static_cast<int>(error.code());
  }
}

}  // namespace
}  // namespace kevin

int main(int argc, char** argv) { return kevin::Main(argc, argv); }
