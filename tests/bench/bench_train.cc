// bench_train: training speed on random weights of published shapes: GRPO updates over packed samples, in
// tokens per second and as a share of the device's peak. Model flops: 6 operations for each weight and token
// (4 where only adapters are trained), the head's for completions only, and attention's; recomputation is not
// counted. --transformers then also times a plain step of transformers and torch on the same shape and
// tokens, in a Python process of its own. Several ranks, as torchrun or Slurm start them, each have a GPU and such a
// batch; --shard splits the weights over them. Prints the memory plan, each step as it ends, and the memory that torch
// took beside the plan. No step begins after --seconds.

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "env/error.h"
#include "env/process/machine.h"
#include "policies/local/model/device.h"
#include "policies/local/train/train_plan.h"
#include "policies/local/train/trainer.h"
#include "tests/bench/model_shapes.h"

namespace kevin {
namespace {

using namespace local;

struct Options {
  std::string device = "cuda:0", shape = "1.5B", quantization = "none";
  int packed_tokens = 16384, prompt = 1024, completion = 1024, steps = 4, lora = 0;
  double seconds = 400;
  bool keep_activations = false, transformers = false, shard = false;
  double peak_tflops = 989;
};

using Clock = std::chrono::steady_clock;

// Whether another step of `step` seconds ends in time on every rank.
bool HasTime(const Options& options, Clock::time_point start, double step, Ranks& ranks) {
  at::Tensor end = at::tensor({SecondsSince(start) + step}, at::kDouble);
  ranks.Largest(&end);
  return end.item<double>() < options.seconds;
}

std::string DeviceOfRank(const Options& options) {
  const char* local = std::getenv("LOCAL_RANK");
  return local != nullptr && options.device.starts_with("cuda") ? std::string("cuda:") + local
                                                                : options.device;
}

Batch MakeBatch(const Options& options, int64_t step, int vocabulary, int ranks) {
  Batch batch;
  batch.step = step;
  const auto token = [&](int64_t i) {
    return static_cast<int32_t>((i * 7919 + step * 104729 + 13) % vocabulary);
  };
  const int samples = ranks * (options.packed_tokens / (options.prompt + options.completion));
  for (int s = 0; s < samples; ++s) {
    Sample& sample = batch.samples.emplace_back();
    for (int i = 0; i < options.prompt; ++i) sample.prompt.push_back(token(s * 100003 + i));
    for (int i = 0; i < options.completion; ++i) {
      sample.completion.push_back(token(s * 100003 + 50021 + i));
      sample.sampler_logprobs.push_back(-static_cast<float>(std::log(vocabulary)));
    }
    sample.advantage = s % 2 ? 1.0f : -1.0f;
  }
  return batch;
}

// Of this rank, beside the plan.
void PrintMemory(at::Device device) {
  if (!device.is_cuda()) return;
  using c10::CachingAllocator::StatType;
  const auto stats = at::getDeviceAllocator(at::kCUDA)->getDeviceStats(device.index());
  const auto peak = [](const auto& all) {
    return 1e-9 * static_cast<double>(all[static_cast<size_t>(StatType::AGGREGATE)].peak);
  };
  std::printf(
      "measured on this rank: %.1f GB in tensors at most, %.1f GB taken from the device; all weights are whole at "
      "the start and after each step\n",
      peak(stats.allocated_bytes), peak(stats.reserved_bytes));
}

void Train(const Options& options, Clock::time_point start) {
  const ModelConfig config = ShapeNamed(options.shape);
  ModelOptions model_options;
  model_options.device = at::Device(DeviceOfRank(options));
  OpenCuda(model_options.device);
  const auto ranks =
      RanksFromEnvironment(600, model_options.device,
                           [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }, {});
  model_options.trainable = true;
  model_options.checkpoint_layers = !options.keep_activations;
  if (options.quantization == "nf4") model_options.quantization = Quantization::kNf4Double;
  if (options.lora > 0) model_options.trainable = false;
  const auto model = MakeRandomLanguageModel(config, model_options, 1);
  if (options.lora > 0) model->AttachAdapters({.rank = options.lora}, 2);
  TrainOptions train;
  train.device = model_options.device.str(), train.recompute = !options.keep_activations;
  train.micro_tokens = options.packed_tokens, train.updates_per_step = 1, train.steps = options.steps + 1;
  train.lora.rank = options.lora, train.shard = options.shard, train.quantization = options.quantization;
  train.choose_recompute = false;
  const bool prints = ranks->Rank() == 0;
  TrainPlanRequest request;
  request.ranks = ranks->Size();
  if (prints)
    std::printf("%s\nthe model is made after %.1f s\n", PlanTraining(config, train, request).text.c_str(),
                SecondsSince(start));
  Trainer trainer(train, *model, nullptr, *ranks);
  double seconds = 0, flops = 0, longest = 0;
  int64_t tokens = 0;
  for (int64_t step = 1; step <= options.steps + 1 && HasTime(options, start, longest, *ranks); ++step) {
    const StepFigures figures = trainer.Step(MakeBatch(options, step, config.vocabulary, ranks->Size()));
    longest = std::max(longest, figures.seconds);
    if (prints)
      std::printf("step %ld%s: %.2f s, %.0f tokens/s\n", static_cast<long>(step),
                  step == 1 ? " (warms up)" : "", figures.seconds,
                  static_cast<double>(figures.tokens) / figures.seconds);
    if (step == 1) continue;
    seconds += figures.seconds, flops += figures.flops, tokens += figures.tokens;
  }
  if (!prints) return;
  PrintMemory(model_options.device);
  if (tokens == 0) {
    if (options.steps > 0) std::printf("no step but the first within %.0f s (--seconds)\n", options.seconds);
    return;
  }
  flops /= ranks->Size();  // of one GPU
  if (ranks->Size() > 1) std::printf("%d ranks%s: ", ranks->Size(), options.shard ? ", sharded" : "");
  std::printf("%s%s%s, %d packed tokens: %.0f tokens/s, %.0f TFLOP/s, %.1f %% of %.0f\n",
              options.shape.c_str(),
              options.lora > 0 ? fmt::format(", adapters of rank {}", options.lora).c_str() : "",
              options.quantization == "none" ? "" : (", " + options.quantization).c_str(),
              options.packed_tokens, static_cast<double>(tokens) / seconds, flops / seconds * 1e-12,
              100 * flops / seconds * 1e-12 / options.peak_tflops, options.peak_tflops);
}

int TimeTransformers(const Options& options, double seconds_left) {
  const ModelConfig shape = ShapeNamed(options.shape);
  const std::string script = fmt::format(
      "model.train()\n"
      "model.gradient_checkpointing_enable()\n"
      "optimizer = torch.optim.AdamW(model.parameters(), lr=2e-6, fused=True)\n"
      "length, rows = {}, {}\n"
      "ids = torch.arange(length * rows, device='cuda').view(rows, length) % {}\n"
      "def step():\n"
      "    for i in range(rows):\n"
      "        model(input_ids=ids[i:i + 1], labels=ids[i:i + 1]).loss.backward()\n"
      "    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05); optimizer.step(); "
      "optimizer.zero_grad()\n"
      "end = time.time() + {:.0f}\n"
      "step(); torch.cuda.synchronize(); t = time.time(); n = 0\n"
      "while n < {} and time.time() < end:\n"
      "    step(); torch.cuda.synchronize(); n += 1\n"
      "    print('transformers and torch, one sequence at a time: %.0f tokens/s' % (n * length * rows / "
      "(time.time() - t)), flush=True)\n",
      options.prompt + options.completion, options.packed_tokens / (options.prompt + options.completion),
      shape.vocabulary, seconds_left, options.steps);
  return RunTransformers(shape, script);
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Training speed on random weights of published shapes");
  app.add_option("--shape", options.shape, "25M, 0.5B, 1.5B, 7B, 14B or 32B")->capture_default_str();
  app.add_option("--device", options.device)->capture_default_str();
  app.add_option("--packed-tokens", options.packed_tokens, "Of an update")->capture_default_str();
  app.add_option("--prompt", options.prompt, "Tokens of each sample's prompt")->capture_default_str();
  app.add_option("--completion", options.completion)->capture_default_str();
  app.add_option("--steps", options.steps, "To time, after one that warms up")->capture_default_str();
  app.add_option("--seconds", options.seconds, "No step begins that would end after this time")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--lora", options.lora, "Adapters of this rank instead of all weights")
      ->capture_default_str();
  app.add_option("--quantization", options.quantization)
      ->check(CLI::IsMember({"none", "nf4"}))
      ->capture_default_str();
  app.add_option("--peak-tflops", options.peak_tflops, "The device's")->capture_default_str();
  app.add_flag("--shard", options.shard, "Split the weights over the ranks");
  app.add_flag("--keep-activations", options.keep_activations, "No recomputation in the backward pass");
  app.add_flag("--transformers", options.transformers, "Also time transformers and torch");
  CLI11_PARSE(app, argc, argv);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const Clock::time_point start = Clock::now();
  try {
    Train(options, start);
    return options.transformers ? TimeTransformers(options, options.seconds - SecondsSince(start)) : 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "bench_train: %s\n  %s\n", error.what(), error.next_step().c_str());
    return static_cast<int>(error.code());
  } catch (const c10::OutOfMemoryError& error) {
    std::fprintf(stderr, "bench_train: %s\n  fewer --packed-tokens, --shard over more ranks, or --lora\n",
                 error.what_without_backtrace());
    return static_cast<int>(ExitCode::kMachine);
  }
}

}  // namespace
}  // namespace kevin

int main(int argc, char** argv) { return kevin::Main(argc, argv); }
