// LoRA: what adapters change, how they are trained, merged, saved and loaded.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "env/error.h"
#include "policies/local/files/safetensors.h"
#include "tests/catch.h"
#include "tests/policies/local/model/model_fixture.h"

namespace kevin::testing {
namespace {

using namespace local;

AdapterOptions Small() {
  AdapterOptions options;
  options.rank = 4;
  options.alpha = 12;
  return options;
}

// Adapters that do something.
void Fill(LanguageModel& model) {
  const at::NoGradGuard no_gradients;
  for (NamedParameter& parameter : model.Parameters()) {
    const std::vector<int64_t> shape = parameter.value.sizes().vec();
    parameter.value.copy_(at::tensor(HashedTensor(parameter.name, shape), at::kFloat).view(shape) * 0.1);
  }
}

const std::vector<int32_t>& Tokens() {
  static const std::vector<int32_t> tokens = HashedTokens("adapted", 25);
  return tokens;
}

std::string Refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("fresh adapters change nothing and are all that is trained") {
  ModelOptions options = Floats();
  options.trainable = true;
  const auto model = HashedModel(TinyConfig(ModelFamily::kQwen2), options);
  const at::Tensor before = LogitsOf(*model, Tokens());
  model->AttachAdapters(Small(), 7);
  CHECK(at::equal(LogitsOf(*model, Tokens()), before));
  const std::vector<NamedParameter> parameters = model->Parameters();
  REQUIRE(parameters.size() == 3 * 7 * 2);
  CHECK(parameters[0].name == "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight");
  CHECK(parameters[0].value.abs().max().item<double>() == Approx(1 / 8.0).epsilon(0.1));  // 1 / sqrt(in)
  Fill(*model);
  CHECK(LargestDifference(LogitsOf(*model, Tokens()), before) > 1e-2);
  model->Hidden(Pack({Tokens()})).pow(2).sum().backward();
  for (const NamedParameter& parameter : model->Parameters()) {
    INFO(parameter.name);
    CHECK(parameter.value.grad().abs().max().item<double>() > 0);
  }
  CHECK(!model->GetWeights().embedding.grad().defined());
}

TEST_CASE(
    "an adapter's gradient is the slope along it, checkpointed or not, over dense or quantised weights") {
  const ModelFamily family = GENERATE(ModelFamily::kLlama, ModelFamily::kQwen3Moe);
  for (const Quantization quantization : {Quantization::kNone, Quantization::kNf4Double}) {
    for (const bool checkpoint : {false, true}) {
      ModelOptions options = Floats();
      options.quantization = quantization;
      options.checkpoint_layers = checkpoint;
      const auto model = HashedModel(TinyConfig(family), options);
      model->AttachAdapters(Small(), 7);
      Fill(*model);
      const auto loss = [&] { return model->Hidden(Pack({Tokens()})).pow(3).mean(); };
      loss().backward();
      for (const NamedParameter& parameter : model->Parameters()) {
        INFO(parameter.name << NameOf(quantization) << checkpoint);
        const at::NoGradGuard no_gradients;
        at::Tensor value = parameter.value;
        const at::Tensor gradient = value.grad().clone();
        const double norm = gradient.norm().item<double>();
        const at::Tensor step = gradient * (2e-3 / norm);
        value.add_(step);
        const double up = loss().item<double>();
        value.sub_(step * 2);
        const double down = loss().item<double>();
        value.add_(step);
        CHECK((up - down) / 4e-3 == Approx(norm).epsilon(0.03).margin(2e-4));
      }
    }
  }
}

TEST_CASE("merged weights compute what weights and adapters do") {
  const auto model = HashedModel(TinyConfig(ModelFamily::kQwen3));
  AdapterOptions options = Small();
  options.targets = {"q_proj", "v_proj", "down_proj"};
  model->AttachAdapters(options, 1);
  CHECK(model->Parameters().size() == 3 * 3 * 2);
  Fill(*model);
  const at::Tensor expected = LogitsOf(*model, Tokens());
  LanguageModel merged(model->Config(), model->Options(), model->MergedWeights());
  CHECK(LargestDifference(LogitsOf(merged, Tokens()), expected) < 1e-4);
  CHECK(at::equal(LogitsOf(*model, Tokens()), expected));
  const TempFolder folder;
  model->Save(folder.path() / "saved", "");
  CHECK(LargestDifference(LogitsOf(*LoadLanguageModel(folder.path() / "saved", Floats()), Tokens()),
                          expected) < 1e-4);
  model->MergeAdapters();
  CHECK(model->Parameters().empty());
  CHECK(LargestDifference(LogitsOf(*model, Tokens()), expected) < 1e-4);
}

TEST_CASE("adapters are saved as PEFT does and load into another copy") {
  const TempFolder folder;
  const auto model = HashedModel(TinyConfig(ModelFamily::kQwen2));
  model->AttachAdapters(Small(), 1);
  Fill(*model);
  model->SaveAdapters(folder.path() / "adapter", "some/base");
  std::ifstream file(folder.path() / "adapter" / "adapter_config.json");
  const nlohmann::json config = nlohmann::json::parse(file);
  CHECK(config["peft_type"] == "LORA");
  CHECK(config["r"] == 4);
  CHECK(config["lora_alpha"] == 12);
  CHECK(config["base_model_name_or_path"] == "some/base");
  const Checkpoint tensors = Checkpoint::Open(folder.path() / "adapter" / "adapter_model.safetensors");
  const StoredTensor* stored = tensors.Find("base_model.model.model.layers.1.mlp.down_proj.lora_B.weight");
  REQUIRE(stored);
  CHECK(stored->shape == std::vector<int64_t>{64, 4});

  const auto other = HashedModel(TinyConfig(ModelFamily::kQwen2));
  other->LoadAdapters(folder.path() / "adapter");
  CHECK(at::equal(LogitsOf(*other, Tokens()), LogitsOf(*model, Tokens())));
}

TEST_CASE("without its adapters a model is what it was, and with them again what it became") {
  const auto model = HashedModel(TinyConfig(ModelFamily::kQwen2));
  const at::Tensor base = LogitsOf(*model, Tokens());
  model->AttachAdapters(Small(), 1);
  Fill(*model);
  const at::Tensor adapted = LogitsOf(*model, Tokens());
  {
    const WithoutAdapters off(*model);
    CHECK(at::equal(LogitsOf(*model, Tokens()), base));
  }
  CHECK(at::equal(LogitsOf(*model, Tokens()), adapted));
}

// Of the greedy tokens after a prompt, through the cache: their log-probabilities.
std::vector<float> DecodedLogprobs(LanguageModel& model, std::vector<int32_t> tokens, int count) {
  TorchRunnerOptions pages;
  pages.pages = 8, pages.page_tokens = 16;
  TorchRunner runner(model, pages);
  const std::vector<int32_t> places = {5, 2, 7, 0};
  std::vector<float> logprobs;
  for (int position = 0; static_cast<int>(logprobs.size()) < count;) {
    SequenceStep step;
    step.tokens = tokens, step.position = position, step.pages = places, step.sample = true;
    step.sampling.temperature = 0;
    runner.Submit({&step, 1});
    position += static_cast<int>(tokens.size());
    const SampledToken drawn = runner.Wait().at(0);
    logprobs.push_back(drawn.model_logprob);
    tokens = {drawn.id};
  }
  return logprobs;
}

TEST_CASE("adapters reach each expert: trained, decoded and saved as merged weights compute") {
  const ModelConfig config = TinyConfig(ModelFamily::kQwen3Moe);
  for (const Quantization quantization : {Quantization::kNone, Quantization::kInt8}) {
    INFO(NameOf(quantization));
    ModelOptions options = Floats();
    options.quantization = quantization;
    const auto model = HashedModel(config, options), base = HashedModel(config, options);
    const at::Tensor before = LogitsOf(*model, Tokens());
    model->AttachAdapters(Small(), 1);
    CHECK(at::equal(LogitsOf(*model, Tokens()), before));  // B is zero
    Fill(*model);
    const at::Tensor adapted = LogitsOf(*model, Tokens());
    CHECK(LargestDifference(adapted, before) > 1e-2);

    LanguageModel merged(model->Config(), Floats(), model->MergedWeights());
    CHECK(LargestDifference(LogitsOf(merged, Tokens()), adapted) < 1e-4);
    const TempFolder folder;
    model->Save(folder.path() / "saved", "");
    const auto saved = LoadLanguageModel(folder.path() / "saved", Floats());
    CHECK(LargestDifference(LogitsOf(*saved, Tokens()), adapted) < 1e-4);
    const std::vector<float> beside = DecodedLogprobs(*model, Tokens(), 20),
                             inside = DecodedLogprobs(*saved, Tokens(), 20);
    for (size_t i = 0; i < beside.size(); ++i) CHECK(std::abs(beside[i] - inside[i]) < 1e-4);
    {
      const WithoutAdapters off(*model);
      CHECK(at::equal(LogitsOf(*model, Tokens()), before));
    }
    CHECK(at::equal(LogitsOf(*model, Tokens()), adapted));

    // PEFT names the projections of each expert.
    model->SaveAdapters(folder.path() / "adapter", "");
    const Checkpoint file = Checkpoint::Open(folder.path() / "adapter" / "adapter_model.safetensors");
    size_t of_experts = 0;
    for (const auto& [name, stored] : file.Tensors())
      of_experts += name.find(".mlp.experts.") != std::string::npos;
    size_t sparse = 0;
    for (int layer = 0; layer < config.layers; ++layer) sparse += config.IsSparse(layer);
    CHECK(of_experts == sparse * static_cast<size_t>(config.experts) * 3 * 2);
    const int last = config.layers - 1;
    REQUIRE(config.IsSparse(last));
    const std::string name =
        "base_model.model.model.layers." + std::to_string(last) + ".mlp.experts.1.down_proj.lora_";
    REQUIRE((file.Find(name + "A.weight") && file.Find(name + "B.weight")));
    CHECK(file.Find(name + "A.weight")->shape == std::vector<int64_t>{4, config.expert_ffn});
    CHECK(file.Find(name + "B.weight")->shape == std::vector<int64_t>{config.hidden, 4});
    base->LoadAdapters(folder.path() / "adapter");
    CHECK(at::equal(LogitsOf(*base, Tokens()), adapted));
    if (quantization != Quantization::kNone) continue;
    model->MergeAdapters();
    CHECK(model->Parameters().empty());
    CHECK(LargestDifference(LogitsOf(*model, Tokens()), adapted) < 1e-4);
  }
}

TEST_CASE("adapters of one projection of the experts, or of the attention around them") {
  const auto model = HashedModel(TinyConfig(ModelFamily::kQwen3Moe));
  AdapterOptions attention = Small();
  attention.targets = {"q_proj", "k_proj", "v_proj", "o_proj"};
  model->AttachAdapters(attention, 1);
  CHECK(model->Parameters().size() == static_cast<size_t>(model->Config().layers) * 4 * 2);
  for (const char* target : {"gate_proj", "up_proj", "down_proj"}) {
    INFO(target);
    AdapterOptions one = Small();
    one.targets = {target};
    model->AttachAdapters(one, 1);
    CHECK(model->Parameters().size() == static_cast<size_t>(model->Config().layers) * 2);
    Fill(*model);
    const at::Tensor adapted = LogitsOf(*model, Tokens());
    LanguageModel merged(model->Config(), model->Options(), model->MergedWeights());
    CHECK(LargestDifference(LogitsOf(merged, Tokens()), adapted) < 1e-4);
  }
}

TEST_CASE("adapters that do not fit are refused") {
  const TempFolder folder;
  const auto model = HashedModel(TinyConfig(ModelFamily::kQwen2));
  model->AttachAdapters(Small(), 1);
  model->SaveAdapters(folder.path() / "adapter", "");
  ModelConfig wider = TinyConfig(ModelFamily::kQwen2);
  wider.ffn = 128;
  const auto other = HashedModel(wider);
  CHECK(Refusal([&] {
          other->LoadAdapters(folder.path() / "adapter");
        }).find("lora_A.weight` does not have") != std::string::npos);
  ModelConfig shallow = TinyConfig(ModelFamily::kQwen2);
  shallow.layers = 2;
  CHECK(Refusal([&] { HashedModel(shallow)->LoadAdapters(folder.path() / "adapter"); }).find("no place") !=
        std::string::npos);
  AdapterOptions unknown = Small();
  unknown.targets = {"q_proj", "qq_proj"};
  CHECK(Refusal([&] { model->AttachAdapters(unknown, 1); }).find("`qq_proj`") != std::string::npos);
  std::ofstream(folder.path() / "adapter" / "adapter_config.json")
      << R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "use_dora": true})";
  CHECK(Refusal([&] { model->LoadAdapters(folder.path() / "adapter"); }).find("use_dora is true") !=
        std::string::npos);
  ModelOptions quantised = Floats();
  quantised.quantization = Quantization::kInt8;
  const auto eight = HashedModel(TinyConfig(ModelFamily::kQwen2), quantised);
  eight->AttachAdapters(Small(), 1);
  CHECK(!Refusal([&] { eight->MergeAdapters(); }).empty());
}

}  // namespace kevin::testing
