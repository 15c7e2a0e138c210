// Where a run trains that names no device.

#include "agent/train/device_choice.h"

#include "env/error.h"
#include "tests/catch.h"

namespace kevin {
namespace {

constexpr int64_t kGb = 1'000'000'000;

// 1.5 B numbers: 29 GB of weights, gradients and optimiser, and activations of 16384 tokens: 43 GB kept, 5 GB recomputed.
local::ModelConfig Model() {
  local::ModelConfig config;
  config.family = local::ModelFamily::kQwen2;
  config.hidden = 1536, config.layers = 28, config.heads = 12, config.kv_heads = 2, config.head_dim = 128;
  config.ffn = 8960, config.vocabulary = 151936, config.tied_embeddings = true, config.qkv_bias = true;
  config.context = 32768, config.dtype = local::NumberType::kBF16;
  return config;
}

std::vector<PossibleDevice> GpuAndCpu(int64_t gpu_bytes, int64_t cpu_bytes) {
  std::vector<PossibleDevice> possible(2);
  possible[0].device = "cuda:0", possible[0].request.device_bytes = gpu_bytes;
  possible[1].device = "cpu", possible[1].request.device_bytes = cpu_bytes;
  return possible;
}

}  // namespace

TEST_CASE("no device is named: the GPU where the run fits, with activations kept or recomputed") {
  const auto roomy = GpuAndCpu(100 * kGb, 1000 * kGb), tight = GpuAndCpu(50 * kGb, 1000 * kGb);
  CHECK_FALSE(local::PlanTraining(Model(), {}, roomy[0].request).recompute);
  CHECK(local::PlanTraining(Model(), {}, tight[0].request).recompute);
  for (const auto& possible : {roomy, tight}) {
    const ChosenDevice chosen = ChooseDevice(Model(), {}, possible);
    CHECK((chosen.index == 0 && chosen.line.empty()));
  }
  // Not where activations are to be kept.
  local::TrainOptions kept;
  kept.choose_recompute = false;
  CHECK(ChooseDevice(Model(), kept, tight).index == 1);
}

TEST_CASE(
    "no device is named: the CPU where the run fits main memory alone, with the number that was too large") {
  const ChosenDevice chosen = ChooseDevice(Model(), {}, GpuAndCpu(24 * kGb, 64 * kGb));
  CHECK(chosen.index == 1);
  INFO(chosen.line);
  CHECK(chosen.line.starts_with(
      "--device auto: trains on cpu, because by the memory plan the run does not fit cuda:0 ("));
  CHECK(chosen.line.find(" GB while learning, and of 24.0 GB available 20.4 may be used)") !=
        std::string::npos);
  CHECK(chosen.line.ends_with("--device cuda:0 has it tried there"));
  // What the model is sampled with counts, too.
  auto sampled = GpuAndCpu(50 * kGb, 1000 * kGb);
  sampled[0].request.context_tokens = 32768, sampled[0].request.judge_bytes = 40 * kGb;
  const ChosenDevice beside = ChooseDevice(Model(), {}, sampled);
  CHECK(beside.index == 1);
  CHECK(beside.line.find(" GB while sampling, and of 50.0 GB available") != std::string::npos);
}

TEST_CASE("no device is named: an error where the run fits nowhere, unless by little") {
  // The plan keeps a part of a device for what it does not count.
  const int64_t needed = local::PlanTraining(Model(), {}, GpuAndCpu(kGb, kGb)[0].request).needed;
  CHECK(ChooseDevice(Model(), {}, GpuAndCpu(needed + kGb, 8 * kGb)).index == 0);
  CHECK(ChooseDevice(Model(), {}, GpuAndCpu(8 * kGb, needed + kGb)).index == 1);
  try {
    ChooseDevice(Model(), {}, GpuAndCpu(24 * kGb, 8 * kGb));
    FAIL("it fits nowhere");
  } catch (const Error& error) {
    INFO(error.what());
    CHECK(error.code() == ExitCode::kMachine);
    const std::string what = error.what();
    CHECK(what.find("does not fit cuda:0 (") != std::string::npos);
    CHECK(what.find("of 24.0 GB available") != std::string::npos);
    CHECK(what.find(", nor cpu (") != std::string::npos);
    CHECK(what.find("of 8.0 GB available") != std::string::npos);
    CHECK(error.next_step().find("--lora 32") != std::string::npos);
  }
}

}  // namespace kevin
