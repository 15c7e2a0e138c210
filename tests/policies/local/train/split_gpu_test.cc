// Two GPUs that sample together over NCCL draw what one GPU draws, before and after an update. And what a step leaves of a
// GPU's memory to a judge.

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <map>
#include <string>

#include "policies/local/model/device.h"
#include "tests/policies/local/fused/has_gpu.h"
#include "tests/policies/local/train/rank_processes.h"
#include "tests/policies/local/train/split_rank.h"

namespace kevin::testing {
namespace {

using namespace local;

constexpr int kGpus = 2;
constexpr NumberType kTypes[] = {NumberType::kF32, NumberType::kBF16};

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

// Of two ranks, in turn for both types. Rank 0 writes three lines to FOLDER/gaps-TYPE: the mean gaps, and what differs by
// more than rounding of fp32 before and after the update.
void SampleAsRank(const Rendezvous& rendezvous, const std::string& folder) {
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(rendezvous.rank));
  OpenCuda(device);
  std::map<NumberType, BeforeAndAfter> alone;
  if (rendezvous.rank == 0) {
    for (const NumberType type : kTypes) alone[type] = DrawnAlone(*ModelOn(device, type));
  }
  Rendezvous first = rendezvous;
  first.lost_seconds = 40;
  Rendezvous further = first;
  further.name = "sums", further.holds_store = false, further.returns_early = true, further.on_lost = nullptr;
  const auto ranks = JoinOverNccl(first, 60, device), sums = JoinOverNccl(further, 60, device);
  for (const NumberType type : kTypes) {
    const std::string told = folder + "/gaps-" + NameOf(type);
    const auto model = ModelOn(device, type);
    SplitRank one(*model, *ranks, *sums, folder + "/socket-" + NameOf(type));
    BeforeAndAfter drawn;
    if (one.leads()) drawn.before = AnswersOf(one.engine());
    one.Learn(1);  // the follower waits for the leader, and not within NCCL: it samples meanwhile
    if (one.leads()) {
      drawn.after = AnswersOf(one.engine());
      const BeforeAndAfter& other = alone.at(type);
      std::ofstream(told) << MeanGap(other.before, drawn.before) << " " << MeanGap(other.after, drawn.after)
                          << "\n"
                          << Difference(other.before, drawn.before, 1e-4) << "\n"
                          << Difference(other.after, drawn.after, 1e-3) << "\n";
    } else if (!IsWritten(told, 60)) {
      throw Error(ExitCode::kBroken, "rank 0 has drawn nothing");
    }
  }
}

TEST_CASE("after a step a GPU's free memory is there for a judge on it", "[gpu]") {
  if (!HasGpu()) return;
  constexpr int64_t kBytes = int64_t{1} << 30;
  const at::Device device(at::kCUDA, 0);
  OpenCuda(device);
  for (const bool is_judged : {false, true}) {
    TrainOptions options = Options();
    options.judge_bytes = is_judged ? 1 : 0;
    const auto model = ModelOn(device, NumberType::kF32);
    const auto alone = OneRank();
    Trainer trainer(options, *model, nullptr, *alone);
    at::empty({kBytes}, at::TensorOptions(at::kByte).device(device));  // torch keeps it
    const int64_t before = FreeBytesOf(device);
    trainer.Step(MakeBatch(1));
    CHECK((FreeBytesOf(device) - before > kBytes / 2) == is_judged);
  }
}

constexpr const char* kOneGpuRank = "one rank that samples with another on a GPU of its own";

TEST_CASE("one rank that samples with another on a GPU of its own", "[.process]") {
  AsRank([](const Rendezvous& rendezvous, const std::string& folder, const EndRank&) {
    SampleAsRank(rendezvous, folder);
  });
}

TEST_CASE("two GPUs that sample together draw what one draws, before and after an update", "[gpu]") {
  if (FindGpus().size() < kGpus) {
    WARN("there are no two GPUs here");
    return;
  }
  const Folder folder;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(150);
  for (const pid_t rank : LaunchRanks(kOneGpuRank, kGpus, folder.Path())) CHECK(CodeOf(rank, limit) == 0);
  for (const NumberType type : kTypes) {
    std::ifstream told(folder.Path() + "/gaps-" + NameOf(type));
    double before = 1, after = 1;
    std::string rest, before_differs = "nothing was drawn", after_differs = before_differs;
    told >> before >> after;
    std::getline(told, rest), std::getline(told, before_differs), std::getline(told, after_differs);
    PrintFigure(fmt::format("split  {}: log-probabilities apart {:.2g} before, {:.2g} after an update",
                            NameOf(type), before, after));
    CHECK(before < 0.05);
    CHECK(after < 0.05);
    if (type != NumberType::kF32) continue;
    CHECK(before_differs == "");
    CHECK(after_differs == "");
  }
}

}  // namespace
}  // namespace kevin::testing
