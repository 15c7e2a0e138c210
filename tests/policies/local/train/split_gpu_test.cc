// Two GPUs that sample together over NCCL draw what one GPU draws, before and after an update.

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "policies/local/model/device.h"
#include "tests/policies/local/fused/has_gpu.h"
#include "tests/policies/local/train/split_rank.h"

namespace kevin::testing {
namespace {

using namespace local;

constexpr int kGpus = 2;

// Widths that tensor cores take.
ModelConfig GpuConfig() {
  ModelConfig config = SplittableConfig();
  config.hidden = 256, config.heads = 8, config.kv_heads = 4, config.head_dim = 64, config.ffn = 512;
  return config;
}

// Equal on every GPU.
std::unique_ptr<LanguageModel> ModelOn(at::Device device, NumberType type) {
  const auto drawn = TinyModel(1, NumberType::kF32, GpuConfig());
  ModelOptions options;
  options.dtype = type, options.trainable = true, options.device = device;
  auto model = MakeRandomLanguageModel(GpuConfig(), options, 1);
  const c10::NoGradGuard no_gradients;
  std::vector<NamedParameter> from = drawn->Parameters(), to = model->Parameters();
  for (size_t i = 0; i < to.size(); ++i) to[i].value.copy_(from[i].value);
  return model;
}

// How far the log-probabilities of two runs are apart, mean over the tokens that both drew in a row from the beginning.
double MeanGap(const Answers& a, const Answers& b) {
  double sum = 0;
  int count = 0;
  for (const auto& [key, tokens] : a) {
    const std::vector<SampledToken>& others = b.at(key);
    for (size_t i = 0; i < std::min(tokens.size(), others.size()) && tokens[i].id == others[i].id; ++i)
      sum += std::abs(tokens[i].model_logprob - others[i].model_logprob), ++count;
  }
  return count > 0 ? sum / count : 0;
}

BeforeAndAfter OnTwoGpus(NumberType type) {
  const Folder folder;
  const int port = FreePort();
  BeforeAndAfter drawn;
  std::vector<std::string> errors(kGpus);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kGpus; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(rank));
        OpenCuda(device);
        Rendezvous first{rank, kGpus, "127.0.0.1", port, rank == 0, "test"};
        Rendezvous further = first;
        further.name = "sums", further.holds_store = false, further.returns_early = true;
        const auto ranks = JoinOverNccl(first, 60, device), sums = JoinOverNccl(further, 60, device);
        const auto model = ModelOn(device, type);
        SplitRank one(*model, *ranks, *sums, folder.Path() + "/socket");
        if (one.leads()) drawn.before = AnswersOf(one.engine());
        ranks->Wait();
        one.Learn(1);
        if (one.leads()) drawn.after = AnswersOf(one.engine());
        ranks->Wait();
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(errors == std::vector<std::string>(kGpus));
  return drawn;
}

}  // namespace

TEST_CASE("two GPUs that sample together draw what one draws, before and after an update", "[gpu]") {
  if (FindGpus().size() < kGpus) {
    WARN("there are no two GPUs here");
    return;
  }
  for (const NumberType type : {NumberType::kF32, NumberType::kBF16}) {
    const BeforeAndAfter one = DrawnAlone(*ModelOn(at::Device(at::kCUDA, 0), type)), two = OnTwoGpus(type);
    const double before = MeanGap(one.before, two.before), after = MeanGap(one.after, two.after);
    PrintFigure(fmt::format("split  {}: log-probabilities apart {:.2g} before, {:.2g} after an update",
                            NameOf(type), before, after));
    if (type == NumberType::kF32) {
      CHECK(Difference(one.before, two.before, 1e-4) == "");
      CHECK(Difference(one.after, two.after, 1e-3) == "");
    } else {
      CHECK(before < 0.05);
      CHECK(after < 0.05);
    }
  }
}

}  // namespace kevin::testing
