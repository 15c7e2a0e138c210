// What models need, against the sizes that are published of them.

#include "policies/local/files/tensor_list.h"
#include "tests/catch.h"
#include "tests/policies/local/hashed_model.h"

namespace kevin::testing {
namespace {

using namespace local;

struct Published {
  const char* name;
  ModelFamily family;
  int hidden, layers, heads, kv_heads, head_dim, ffn, vocabulary;
  bool tied;
  double billions;
  int cache_kib;  // a token, bf16
};

constexpr Published kModels[] = {
    {"Qwen2.5-0.5B", ModelFamily::kQwen2, 896, 24, 14, 2, 64, 4864, 151936, true, 0.494, 12},
    {"Qwen2.5-1.5B", ModelFamily::kQwen2, 1536, 28, 12, 2, 128, 8960, 151936, true, 1.544, 28},
    {"Qwen2.5-7B", ModelFamily::kQwen2, 3584, 28, 28, 4, 128, 18944, 152064, false, 7.616, 56},
    {"Qwen2.5-32B", ModelFamily::kQwen2, 5120, 64, 40, 8, 128, 27648, 152064, false, 32.764, 256},
    {"Qwen3-0.6B", ModelFamily::kQwen3, 1024, 28, 16, 8, 128, 3072, 151936, true, 0.596, 112},
    {"Qwen3-32B", ModelFamily::kQwen3, 5120, 64, 64, 8, 128, 25600, 151936, false, 32.762, 256},
    {"Llama-3.2-1B", ModelFamily::kLlama, 2048, 16, 32, 8, 64, 8192, 128256, true, 1.236, 32},
    {"Llama-3.1-8B", ModelFamily::kLlama, 4096, 32, 32, 8, 128, 14336, 128256, false, 8.030, 128},
    {"Qwen3-30B-A3B", ModelFamily::kQwen3Moe, 2048, 48, 32, 4, 128, 6144, 151936, false, 30.53, 96}};

ModelConfig ConfigOf(const Published& model) {
  ModelConfig config = TinyConfig(model.family);
  config.hidden = model.hidden;
  config.layers = model.layers;
  config.heads = model.heads;
  config.kv_heads = model.kv_heads;
  config.head_dim = model.head_dim;
  config.ffn = model.ffn;
  config.vocabulary = model.vocabulary;
  config.tied_embeddings = model.tied;
  config.context = 32768;
  if (model.family != ModelFamily::kQwen3Moe) return config;
  config.experts = 128;
  config.experts_per_token = 8;
  config.expert_ffn = 768;
  config.is_sparse.assign(static_cast<size_t>(model.layers), true);
  return config;
}

MemoryPlan Plan(const char* name, double gigabytes, Quantization quantization = Quantization::kNone,
                int context = 0) {
  for (const Published& model : kModels) {
    if (std::string(model.name) != name) continue;
    MemoryRequest request;
    request.device_bytes = static_cast<int64_t>(gigabytes * 1e9);
    request.quantization = quantization;
    request.context_tokens = context;
    return PlanMemory(ConfigOf(model), request);
  }
  FAIL(name);
  return {};
}

}  // namespace

TEST_CASE("parameters and cache are those of the published models") {
  for (const Published& model : kModels) {
    INFO(model.name);
    const MemoryPlan plan = PlanMemory(ConfigOf(model), {});
    CHECK(static_cast<double>(plan.parameters) / 1e9 == Approx(model.billions).margin(0.006));
    CHECK(plan.cache_bytes_per_token == model.cache_kib * 1024);
    CHECK(static_cast<double>(plan.weight_bytes) ==
          Approx(2.0 * static_cast<double>(plan.parameters)).epsilon(0.03));
  }
}

TEST_CASE("quantised weights are counted with their scales") {
  const double dense = static_cast<double>(Plan("Qwen2.5-32B", 150).weight_bytes);
  const double embeddings = 2 * 2.0 * 152064 * 5120;  // these stay as they are
  const double projections = dense - embeddings;
  CHECK(static_cast<double>(Plan("Qwen2.5-32B", 150, Quantization::kInt8).weight_bytes) ==
        Approx(projections / 2 + embeddings).epsilon(0.001));
  CHECK(static_cast<double>(Plan("Qwen2.5-32B", 150, Quantization::kNf4).weight_bytes) ==
        Approx(projections / 2 * (0.5 + 4.0 / 64) + embeddings).epsilon(0.002));
  CHECK(static_cast<double>(Plan("Qwen2.5-32B", 150, Quantization::kNf4Double).weight_bytes) ==
        Approx(projections / 2 * (0.5 + 1.0 / 64 + 4.0 / 64 / 256) + embeddings).epsilon(0.002));
}

TEST_CASE("the plan says what fits") {
  using Catch::Contains;
  const MemoryPlan large = Plan("Qwen2.5-7B", 150);
  CHECK(large.fits);
  CHECK(large.context_tokens == 32768);
  CHECK(large.cache_tokens == large.pages * 32);
  // What is promised is within the device, with its reserve.
  const double promised = static_cast<double>(large.weight_bytes + large.activation_bytes +
                                              large.cache_tokens * large.cache_bytes_per_token);
  CHECK(promised < 0.95 * 150e9);
  CHECK(promised > 0.85 * 150e9);
  CHECK_THAT(large.message,
             Contains("7.62 B parameters (BF16)") && Contains("room for") && Contains("of 32768"));

  const MemoryPlan small = Plan("Qwen2.5-32B", 60);
  CHECK(!small.fits);
  CHECK(small.pages == 0);
  CHECK_THAT(small.message, Contains("it does not fit; with --quantization int8 it does"));
  CHECK_THAT(Plan("Qwen2.5-32B", 28).message, Contains("with --quantization nf4-double it does"));
  CHECK_THAT(Plan("Qwen2.5-32B", 8).message, Contains("it does not fit") && !Contains("quantization"));

  const MemoryPlan tight = Plan("Qwen2.5-7B", 18, Quantization::kNone, 30000);
  CHECK(!tight.fits);
  CHECK(tight.cache_tokens > 0);
  CHECK_THAT(tight.message, Contains("tokens only, 30000 are needed"));
  CHECK(Plan("Qwen2.5-7B", 18, Quantization::kNone, 1000).fits);
}

}  // namespace kevin::testing
