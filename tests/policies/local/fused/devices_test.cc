// The same folder on the CPU and on a GPU: logits, drawn tokens and gradients, for every family and way to
// keep weights.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <map>

#include "policies/local/fused/fused_runner.h"
#include "policies/local/model/attention.h"
#include "tests/catch.h"
#include "tests/policies/local/fused/has_gpu.h"
#include "tests/policies/local/model/model_fixture.h"

namespace kevin::testing {
namespace {

using namespace local;

const at::Device kGpu(at::kCUDA, 0);

PackedTokens On(const PackedTokens& tokens, at::Device device) {
  return {tokens.ids.to(device), tokens.positions.to(device), tokens.starts};
}

PackedTokens Batch() {
  return Pack({HashedTokens("one", 190), HashedTokens("two", 1), HashedTokens("three", 64)});
}

// Widths that tensor cores take.
ModelConfig Config(ModelFamily family) {
  ModelConfig config = TinyConfig(family);
  config.hidden = 128, config.heads = 4, config.kv_heads = 2, config.head_dim = 64, config.ffn = 256;
  if (config.experts > 0) config.expert_ffn = 64;
  return config;
}

at::Tensor Logits(const std::filesystem::path& folder, const ModelOptions& options) {
  const auto model = LoadLanguageModel(folder, options);
  const at::NoGradGuard no_gradients;
  return model->Logits(model->Hidden(On(Batch(), options.device))).to(at::kCPU, at::kFloat);
}

// Root of the mean square of the difference, over that of the first.
double RelativeDifference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).to(at::kDouble).norm() / a.to(at::kDouble).norm()).item<double>();
}

// The same of the median row: where two experts are nearly tied, rounding sends a token elsewhere.
double MedianDifference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor rows = (a - b).to(at::kDouble).norm(2, 1) / a.to(at::kDouble).norm(2, 1);
  return rows.median().item<double>();
}

std::map<std::string, at::Tensor> Gradients(const std::filesystem::path& folder,
                                            const ModelOptions& options) {
  const auto model = LoadLanguageModel(folder, options);
  const PackedTokens tokens = On(Batch(), options.device);
  at::cross_entropy_loss(model->Logits(model->Hidden(tokens)).to(at::kFloat), tokens.ids.roll(-1)).backward();
  std::map<std::string, at::Tensor> gradients;
  for (const NamedParameter& parameter : model->Parameters())
    gradients[parameter.name] = parameter.value.grad().to(at::kCPU, at::kFloat);
  return gradients;
}

}  // namespace

TEST_CASE("a GPU computes the CPU's logits, in every family, type and quantisation", "[gpu]") {
  if (!HasGpu()) return;
  const ModelFamily family =
      GENERATE(ModelFamily::kQwen2, ModelFamily::kQwen3, ModelFamily::kQwen3Moe, ModelFamily::kLlama);
  const TempFolder folder;
  WriteHashedModel(folder.path(), ConfigJson(Config(family)));
  const ModelOptions floats = Floats();
  const at::Tensor exact = Logits(folder.path(), floats);
  INFO("family " << static_cast<int>(family));
  struct Kind {
    NumberType dtype;
    Quantization quantization;
  };
  for (const Kind kind :
       {Kind{NumberType::kF32, Quantization::kNone}, Kind{NumberType::kBF16, Quantization::kNone},
        Kind{NumberType::kF32, Quantization::kInt8}, Kind{NumberType::kBF16, Quantization::kInt8},
        Kind{NumberType::kBF16, Quantization::kNf4}, Kind{NumberType::kBF16, Quantization::kNf4Double}}) {
    ModelOptions options;
    options.dtype = kind.dtype, options.quantization = kind.quantization;
    const at::Tensor cpu = Logits(folder.path(), options);
    options.device = kGpu;
    const at::Tensor gpu = Logits(folder.path(), options);
    // In bfloat16 both devices are as far from the exact logits of these weights, each its own way.
    const bool is_sparse = family == ModelFamily::kQwen3Moe;
    const double apart = is_sparse ? MedianDifference(cpu, gpu) : RelativeDifference(cpu, gpu);
    const double rounding = RelativeDifference(exact, cpu);
    PrintFigure(fmt::format("devices  family {}, {} {}: logits apart {:.2g}", static_cast<int>(family),
                            NameOf(kind.dtype), NameOf(kind.quantization), apart));
    INFO(NameOf(kind.dtype) << " " << NameOf(kind.quantization) << ": devices apart " << apart
                            << ", from the exact model " << rounding);
    CHECK(apart < (kind.dtype == NumberType::kF32 ? 1e-5 : 0.02));
  }
}

TEST_CASE("a GPU's gradients are the CPU's, attention over packed sequences included", "[gpu]") {
  if (!HasGpu()) return;
  const ModelFamily family =
      GENERATE(ModelFamily::kQwen2, ModelFamily::kQwen3, ModelFamily::kQwen3Moe, ModelFamily::kLlama);
  const bool recompute = GENERATE(false, true);
  const TempFolder folder;
  WriteHashedModel(folder.path(), ConfigJson(Config(family)));
  ModelOptions options = Floats();
  options.trainable = true;
  const auto exact = Gradients(folder.path(), options);
  options.device = kGpu;
  options.checkpoint_layers = recompute;
  for (const NumberType dtype : {NumberType::kF32, NumberType::kBF16}) {
    options.dtype = dtype;
    const auto gpu = Gradients(folder.path(), options);
    REQUIRE(gpu.size() == exact.size());
    double largest = 0;
    for (const auto& [name, gradient] : exact)
      largest = std::max(largest, RelativeDifference(gradient, gpu.at(name)));
    PrintFigure(fmt::format("devices  family {}, {}: gradients apart at most {:.2g}",
                            static_cast<int>(family), NameOf(dtype), largest));
    for (const auto& [name, gradient] : exact) {
      const double apart = RelativeDifference(gradient, gpu.at(name));
      INFO("family " << static_cast<int>(family) << ", " << NameOf(dtype) << ", " << name << ": " << apart);
      CHECK(apart < (dtype == NumberType::kF32 ? 1e-4 : 0.08));
    }
  }
}

TEST_CASE("a GPU's adapters of experts are the CPU's, in logits and gradients", "[gpu]") {
  if (!HasGpu()) return;
  const TempFolder folder;
  WriteHashedModel(folder.path(), ConfigJson(Config(ModelFamily::kQwen3Moe)));
  const int rank = GENERATE(4, 16);  // one by one; in grouped products in bfloat16
  AdapterOptions adapters;
  adapters.rank = rank, adapters.alpha = 2 * rank;
  const auto run = [&](const ModelOptions& options) {
    const auto model = LoadLanguageModel(folder.path(), options);
    model->AttachAdapters(adapters, 1);
    for (NamedParameter& p : model->Parameters()) {
      const at::NoGradGuard no_gradients;
      const std::vector<int64_t> shape = p.value.sizes().vec();
      p.value.copy_(at::tensor(HashedTensor(p.name, shape), at::kFloat).view(shape) * 0.1);
    }
    const PackedTokens tokens = On(Batch(), options.device);
    const at::Tensor logits = model->Logits(model->Hidden(tokens)).to(at::kFloat);
    at::cross_entropy_loss(logits, tokens.ids.roll(-1)).backward();
    std::map<std::string, at::Tensor> all = {{"logits", logits.detach().cpu()}};
    for (const NamedParameter& p : model->Parameters()) all[p.name] = p.value.grad().to(at::kCPU, at::kFloat);
    return all;
  };
  const auto exact = run(Floats());
  ModelOptions rounded = Floats();
  rounded.dtype = NumberType::kBF16;
  const auto cpu = run(rounded);
  for (const NumberType dtype : {NumberType::kF32, NumberType::kBF16}) {
    ModelOptions options = Floats();
    options.device = kGpu, options.dtype = dtype;
    const auto gpu = run(options);
    REQUIRE(gpu.size() == exact.size());
    const auto apart_of = [&](const auto& values, const std::string& name) {
      return name == "logits" ? MedianDifference(exact.at(name), values.at(name))
                              : RelativeDifference(exact.at(name), values.at(name));
    };
    double largest = 0, largest_of_cpu = 0;
    for (const auto& [name, value] : exact) {
      largest = std::max(largest, apart_of(gpu, name));
      largest_of_cpu = std::max(largest_of_cpu, apart_of(cpu, name));
    }
    for (const auto& [name, value] : exact) {
      const double apart = apart_of(gpu, name);
      INFO(NameOf(dtype) << ", rank " << rank << ", " << name << ": " << apart << ", bfloat16 on a CPU "
                         << apart_of(cpu, name) << ", at most " << largest_of_cpu);
      // Rounding changes which experts a token gets, and so any of the gradients: on a CPU as on a GPU.
      CHECK(apart < (dtype == NumberType::kF32 ? 1e-4 : 1.5 * largest_of_cpu));
    }
    PrintFigure(fmt::format(
        "devices  adapters of experts, {}, rank {}: logits apart {:.2g}, gradients at most {:.2g} (bfloat16 on a CPU {:.2g})",
        NameOf(dtype), rank, apart_of(gpu, "logits"), largest, largest_of_cpu));
  }
}

TEST_CASE("a long sequence's attention is the exact one, whatever its length is rounded up to", "[gpu]") {
  if (!HasGpu()) return;
  at::manual_seed(4);
  const int64_t tokens = GENERATE(1024, 1300, 2047), heads = GENERATE(6, 28), dim = GENERATE(64, 128);
  const at::ScalarType type = GENERATE(at::kBFloat16, at::kHalf);
  // As they come out of a projection: one beside the other.
  const at::Tensor qkv = at::randn({tokens, heads + 4, dim}, at::kFloat).to(kGpu, type);
  const at::Tensor q = qkv.narrow(1, 0, heads), k = qkv.narrow(1, heads, 2), v = qkv.narrow(1, heads + 2, 2);
  const c10::InferenceMode inference;
  const at::Tensor attended = AttendLongSequence(q, k, v);
  REQUIRE(attended.defined());
  const auto exact = [](const at::Tensor& x) { return x.to(at::kCPU, at::kFloat); };
  const at::Tensor expected = AttendRagged(exact(q), exact(k), exact(v), PackedRows({0, tokens}, at::kCPU));
  const double apart = RelativeDifference(expected, attended.to(at::kCPU, at::kFloat));
  INFO(tokens << " tokens, " << heads << " heads of " << dim << ": " << apart);
  CHECK(apart < (type == at::kHalf ? 1e-3 : 8e-3));
}

TEST_CASE("a GPU draws the CPU's tokens through the cache", "[gpu]") {
  if (!HasGpu()) return;
  const ModelFamily family =
      GENERATE(ModelFamily::kQwen2, ModelFamily::kQwen3, ModelFamily::kQwen3Moe, ModelFamily::kLlama);
  const TempFolder folder;
  WriteHashedModel(folder.path(), ConfigJson(Config(family)));
  ModelOptions options = Floats();
  TorchRunnerOptions runner;
  runner.pages = 40, runner.page_tokens = 16;
  std::vector<int32_t> pages;
  for (int page = 0; page < 20; ++page) pages.push_back((page * 7 + 3) % 40);
  const auto cpu_model = LoadLanguageModel(folder.path(), options);
  options.device = kGpu;
  const auto gpu_model = LoadLanguageModel(folder.path(), options);
  TorchRunner on_cpu(*cpu_model, runner), on_gpu(*gpu_model, runner);
  const std::vector<int32_t> prompt = HashedTokens("prompt", 150);
  CHECK(Greedy(on_gpu, prompt, 60, pages) == Greedy(on_cpu, prompt, 60, pages));
}

}  // namespace kevin::testing
