// Folders into models and back.

#include <ATen/ATen.h>

#include <chrono>
#include <cstdio>
#include <fstream>

#include "env/error.h"
#include "policies/local/model/build_weights.h"
#include "tests/catch.h"
#include "tests/policies/local/model/model_fixture.h"

namespace kevin::testing {
namespace {

using namespace local;

const std::vector<int32_t>& Tokens() {
  static const std::vector<int32_t> tokens = HashedTokens("loading", 20);
  return tokens;
}

ModelOptions In(NumberType dtype) {
  ModelOptions options;
  options.dtype = dtype;
  return options;
}

}  // namespace

TEST_CASE("a model that is saved and loaded computes the same, in shards too") {
  for (const ModelFamily family : {ModelFamily::kQwen2, ModelFamily::kQwen3Moe}) {
    const ModelConfig config = TinyConfig(family);
    const TempFolder folder;
    WriteOptions shards;
    shards.shard_bytes = 100'000;
    WriteHashedModel(folder.path() / "shards", ConfigJson(config), shards);
    std::ofstream(folder.path() / "shards" / "tokenizer.json") << "{}";
    CHECK(Checkpoint::Open(folder.path() / "shards").Files() > 3);
    const auto model = LoadLanguageModel(folder.path() / "shards", Floats());
    model->Save(folder.path() / "saved", folder.path() / "shards");
    CHECK(std::filesystem::exists(folder.path() / "saved" / "tokenizer.json"));
    CHECK(!std::filesystem::exists(folder.path() / "saved" / "model.safetensors.index.json"));
    const auto saved = LoadLanguageModel(folder.path() / "saved", Floats());
    CHECK(at::equal(LogitsOf(*saved, Tokens()), LogitsOf(*HashedModel(config), Tokens())));
    CHECK_THROWS_AS(model->Save(folder.path() / "saved", ""), Error);
  }
}

TEST_CASE("weights are turned into the type that is asked for") {
  const ModelConfig config = TinyConfig(ModelFamily::kLlama);
  const TempFolder folder;
  WriteHashedModel(folder.path() / "f32", ConfigJson(config));
  for (const NumberType type : {NumberType::kBF16, NumberType::kF16}) {
    const auto model = LoadLanguageModel(folder.path() / "f32", In(type));
    const std::filesystem::path place = folder.path() / NameOf(type);
    model->Save(place, "");
    CHECK(ReadModelConfig(place).dtype == type);
    const auto back = LoadLanguageModel(place, Floats());
    const at::Tensor& stored = back->GetWeights().layers[1].down.weight;
    const std::vector<float> exact = HashedTensor("model.layers.1.mlp.down_proj.weight", {64, 112});
    CHECK(
        at::equal(stored, at::tensor(exact, at::kFloat).view({64, 112}).to(TorchType(type)).to(at::kFloat)));
  }
}

TEST_CASE("random models hang on their seed alone") {
  const ModelConfig config = TinyConfig(ModelFamily::kQwen2);
  const auto a = MakeRandomLanguageModel(config, Floats(), 5),
             b = MakeRandomLanguageModel(config, Floats(), 5);
  CHECK(at::equal(LogitsOf(*a, Tokens()), LogitsOf(*b, Tokens())));
  CHECK(
      !at::equal(LogitsOf(*MakeRandomLanguageModel(config, Floats(), 6), Tokens()), LogitsOf(*a, Tokens())));
  CHECK(a->GetWeights().layers[0].down.weight.std().item<double>() == Approx(0.02).epsilon(0.05));
}

TEST_CASE("what cannot be loaded says why") {
  const TempFolder folder;
  ModelConfig config = TinyConfig(ModelFamily::kQwen2);
  WriteHashedModel(folder.path(), ConfigJson(config));
  config.ffn = 96;
  std::ofstream(folder.path() / "config.json") << ConfigJson(config);
  CHECK_THROWS_WITH(LoadLanguageModel(folder.path(), Floats()),
                    Catch::Contains("mlp.gate_proj.weight` is [112, 64], but config.json makes it [96, 64]"));
  ModelOptions options = Floats();
  options.trainable = true;
  options.quantization = Quantization::kNf4;
  CHECK_THROWS_AS(LoadLanguageModel(folder.path(), options), Error);
  CHECK_THROWS_AS(LoadLanguageModel(folder.path(), In(NumberType::kF64)), Error);
}

TEST_CASE("bytes a second while loading", "[.speed]") {
  ModelConfig config = TinyConfig(ModelFamily::kQwen2);
  config.hidden = 1536;
  config.head_dim = 128;
  config.heads = 12;
  config.ffn = 8960;
  config.layers = 14;
  config.vocabulary = 32000;
  const TempFolder folder;
  MakeRandomLanguageModel(config, In(NumberType::kBF16), 1)->Save(folder.path() / "big", "");
  const std::filesystem::path file = folder.path() / "big" / "model.safetensors";
  const double bytes = static_cast<double>(std::filesystem::file_size(file));
  const auto begin = std::chrono::steady_clock::now();
  {
    // Into memory that is as fresh as the model's.
    const std::unique_ptr<char[]> memory(new char[static_cast<size_t>(bytes)]);
    std::ifstream stream(file, std::ios::binary);
    REQUIRE(stream.read(memory.get(), static_cast<std::streamsize>(bytes)));
  }
  const auto middle = std::chrono::steady_clock::now();
  const auto model = LoadLanguageModel(folder.path() / "big", In(NumberType::kBF16));
  const auto end = std::chrono::steady_clock::now();
  const double read = std::chrono::duration<double>(middle - begin).count();
  const double load = std::chrono::duration<double>(end - middle).count();
  std::printf("%.2f GB: read at %.2f GB/s, loaded at %.2f GB/s\n", bytes / 1e9, bytes / 1e9 / read,
              bytes / 1e9 / load);
  CHECK(load < 1.5 * read);
}

}  // namespace kevin::testing
