// Gradients of the network: against finite differences, and the same by every way to them.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "policies/local/files/tensor_list.h"
#include "tests/catch.h"
#include "tests/policies/local/model/model_fixture.h"

namespace kevin::testing {
namespace {

using namespace local;

const ModelFamily kFamilies[] = {ModelFamily::kQwen2, ModelFamily::kQwen3, ModelFamily::kQwen3Moe,
                                 ModelFamily::kLlama};

ModelOptions Trainable(bool checkpoint = false) {
  ModelOptions options = Floats();
  options.trainable = true;
  options.checkpoint_layers = checkpoint;
  return options;
}

const PackedTokens& Batch() {
  static const PackedTokens packed =
      Pack({HashedTokens("one", 19), HashedTokens("two", 1), HashedTokens("three", 11)});
  return packed;
}

// Of the next token, over everything; what it predicts does not matter here.
at::Tensor Loss(LanguageModel& model, const PackedTokens& tokens = Batch()) {
  const at::Tensor logits = model.Logits(model.Hidden(tokens));
  return at::cross_entropy_loss(logits, tokens.ids.roll(-1));
}

std::map<std::string, at::Tensor> Gradients(LanguageModel& model) {
  for (NamedParameter& parameter : model.Parameters()) parameter.value.mutable_grad() = at::Tensor();
  Loss(model).backward();
  std::map<std::string, at::Tensor> gradients;
  for (const NamedParameter& parameter : model.Parameters()) {
    REQUIRE(parameter.value.grad().defined());
    gradients[parameter.name] = parameter.value.grad().clone();
  }
  return gradients;
}

double LossAlong(LanguageModel& model, at::Tensor value, const at::Tensor& step) {
  const at::NoGradGuard no_gradients;
  value.add_(step);
  const double loss = Loss(model).item<double>();
  value.sub_(step);
  return loss;
}

}  // namespace

TEST_CASE("every parameter's gradient is the loss's slope along it") {
  for (const ModelFamily family : kFamilies) {
    const auto model = HashedModel(TinyConfig(family), Trainable());
    const std::map<std::string, at::Tensor> gradients = Gradients(*model);
    for (const NamedParameter& parameter : model->Parameters()) {
      INFO("family " << static_cast<int>(family) << ", " << parameter.name);
      const at::Tensor& gradient = gradients.at(parameter.name);
      const double norm = gradient.norm().item<double>();
      // A bias of keys shifts all scores of a query alike: nothing changes.
      if (parameter.name.ends_with("k_proj.bias") && norm < 1e-3) continue;
      REQUIRE(norm > 1e-4);
      const at::Tensor step = gradient * (2e-3 / (norm * std::max(norm, 0.05)));
      const double rise =
          LossAlong(*model, parameter.value, step) - LossAlong(*model, parameter.value, -step);
      CHECK(rise / (2 * step.norm().item<double>()) == Approx(norm).epsilon(0.02));
    }
  }
}

TEST_CASE("running layers again in the backward pass changes no gradient") {
  for (const ModelFamily family : kFamilies) {
    const auto plain = HashedModel(TinyConfig(family), Trainable());
    const auto again = HashedModel(TinyConfig(family), Trainable(true));
    const std::map<std::string, at::Tensor> expected = Gradients(*plain), gradients = Gradients(*again);
    REQUIRE(expected.size() == gradients.size());
    for (const auto& [name, gradient] : gradients) {
      INFO("family " << static_cast<int>(family) << ", " << name);
      CHECK(at::equal(gradient, expected.at(name)));
    }
  }
}

TEST_CASE("packed sequences do not see each other") {
  const auto model = HashedModel(TinyConfig(ModelFamily::kQwen3), Trainable());
  const at::Tensor together = model->Hidden(Batch());
  const at::Tensor alone = model->Hidden(Pack({HashedTokens("three", 11)}));
  CHECK(LargestDifference(together.narrow(0, 20, 11), alone) < 1e-5);
  // The last sequence's tokens pull at their own embeddings only.
  model->Hidden(Batch()).narrow(0, 20, 11).pow(2).sum().backward();
  const at::Tensor gradient = model->GetWeights().embedding.grad();
  std::vector<bool> used(160);
  for (const int32_t token : HashedTokens("three", 11)) used[static_cast<size_t>(token)] = true;
  for (int64_t token = 0; token < 160; ++token)
    CHECK((gradient[token].abs().max().item<double>() > 0) == used[static_cast<size_t>(token)]);
}

TEST_CASE("switching gradients off changes no bit") {
  for (const ModelFamily family : kFamilies) {
    const auto model = HashedModel(TinyConfig(family), Trainable(true));
    const at::Tensor with = model->Hidden(Batch());
    const at::NoGradGuard no_gradients;
    CHECK(with.requires_grad());
    CHECK(at::equal(with, model->Hidden(Batch())));
  }
}

TEST_CASE("parameters are the checkpoint's, and a step on them reaches sampler and file") {
  const ModelConfig config = TinyConfig(ModelFamily::kQwen2);
  const auto model = HashedModel(config, Trainable());
  std::vector<std::string> names, expected;
  for (const NamedParameter& parameter : model->Parameters()) names.push_back(parameter.name);
  for (const ExpectedTensor& tensor : ExpectedTensors(config)) expected.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  std::sort(expected.begin(), expected.end());
  CHECK(names == expected);

  const double before = Loss(*model).item<double>();
  const std::map<std::string, at::Tensor> gradients = Gradients(*model);
  {
    const at::NoGradGuard no_gradients;
    for (NamedParameter& parameter : model->Parameters())
      parameter.value.sub_(gradients.at(parameter.name) * 0.05);
  }
  CHECK(Loss(*model).item<double>() < before - 0.05);
  const std::vector<int32_t> prompt = HashedTokens("after", 12);
  const at::Tensor row = at::log_softmax(LogitsOf(*model, prompt)[-1], 0);
  TorchRunnerOptions options;
  options.pages = 2;
  TorchRunner runner(*model, options);
  SequenceStep step;
  const std::vector<int32_t> pages = {0, 1};
  step.tokens = prompt;
  step.pages = pages;
  step.sample = true;
  step.sampling.temperature = 0;
  runner.Submit({&step, 1});
  const SampledToken drawn = runner.Wait().at(0);
  CHECK(drawn.model_logprob == Approx(row.max().item<double>()).margin(1e-4));
  const TempFolder folder;
  model->Save(folder.path() / "saved", "");
  CHECK(at::equal(LogitsOf(*LoadLanguageModel(folder.path() / "saved", Floats()), prompt),
                  LogitsOf(*model, prompt)));
}

TEST_CASE("a sparse layer's parameters are its stacked experts") {
  const auto model = HashedModel(TinyConfig(ModelFamily::kQwen3Moe), Trainable());
  int stacked = 0;
  for (const NamedParameter& parameter : model->Parameters())
    stacked += parameter.name == "model.layers.2.mlp.experts.gate_up_proj" && parameter.value.size(0) == 8;
  CHECK(stacked == 1);
  // An expert that no token reached has no gradient.
  const PackedTokens one = Pack({{5}});
  model->Hidden(one).sum().backward();
  const at::Tensor gradient = model->GetWeights().layers[0].experts.down.grad();
  CHECK(gradient.abs().amax({1, 2}).gt(0).sum().item<int64_t>() == 2);
}

}  // namespace kevin::testing
