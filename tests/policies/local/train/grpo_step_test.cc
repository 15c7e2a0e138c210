// One step of GRPO against goldens/grpo_step.py, which does it plainly with transformers and torch in
// float64.

#include <ATen/ATen.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "agent/attribution/attribution.h"
#include "policies/local/train/trainer.h"
#include "tests/catch.h"
#include "tests/folders.h"
#include "tests/policies/local/formula_model.h"
#include "tests/policies/local/train/tiny_model.h"

namespace kevin::local {
namespace {

constexpr int kVocabulary = 13;

// The score of a turn is its speed-up here.
std::vector<AttributedEpisode> Episodes() {
  std::vector<AttributedEpisode> episodes(4);
  for (int e = 0; e < 4; ++e) {
    for (int t = 0; t < 2; ++t) {
      TurnFacts facts;
      facts.has_source = facts.compiled = facts.correct = true;
      facts.speedup = 0.4 * ((e * 3 + t * 2) % 5);
      episodes[static_cast<size_t>(e)].turns.push_back(facts);
    }
  }
  return episodes;
}

Batch MakeBatch(std::vector<double>* advantages) {
  Scheme scheme = *FindScheme("kevin");
  scheme.score.correct = 0;
  const Attribution attribution = Attribute(scheme, Episodes());
  Batch batch;
  batch.step = 1;
  for (int e = 0; e < 4; ++e) {
    for (int t = 0; t < 2; ++t) {
      Sample sample;
      for (int i = 0; i < 3 + t; ++i) sample.prompt.push_back((e + 3 * i + t) % kVocabulary);
      for (int i = 0; i < 2 + (e + t) % 4; ++i) {
        sample.completion.push_back((e * 5 + i * i + 2 * t) % kVocabulary);
        sample.sampler_logprobs.push_back(-2.0f - 0.1f * static_cast<float>((e + t + i) % 5));
      }
      advantages->push_back(attribution.turns[batch.samples.size()].advantage);
      sample.advantage = static_cast<float>(advantages->back());
      sample.temperature = 0.9f;
      batch.samples.push_back(sample);
    }
  }
  return batch;
}

TrainOptions Options() {
  TrainOptions options;
  options.loss.constant_tokens = 16;
  options.loss.correction = Correction::kTruncate;
  options.schedule = {2e-2, Decay::kConstant, 0, 0};
  options.adam.weight_decay = 0.1, options.adam.epsilon = 1e-4;
  options.seed = 7, options.micro_tokens = 20, options.logits_tokens = 3;
  return options;
}

TEST_CASE("a step of grpo equals the plain reference within 1e-5") {
  const auto golden =
      nlohmann::json::parse(std::ifstream(SourceFolder() / "tests/policies/local/goldens/grpo_step.json"));
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("kevin-grpo-" + std::to_string(getpid()));
  WriteFormulaModel(folder, TinyConfig(kVocabulary, 8), 1.6f);
  ModelOptions model_options;
  model_options.dtype = NumberType::kF32, model_options.trainable = true;
  const auto model = LoadLanguageModel(folder, model_options);
  std::filesystem::remove_all(folder);
  std::vector<double> advantages;
  const Batch batch = MakeBatch(&advantages);
  for (size_t i = 0; i < 8; ++i) CHECK(advantages[i] == Approx(golden.at("advantages")[i].get<double>()));

  const auto alone = OneRank();
  Trainer trainer(Options(), *model, nullptr, *alone);
  const StepFigures figures = trainer.Step(batch);
  const auto mean = [&](const char* name) {
    return (golden.at(name)[0].get<double>() + golden.at(name)[1].get<double>()) / 2;
  };
  CHECK(figures.loss == Approx(mean("losses")).epsilon(1e-5));
  CHECK(figures.grad_norm == Approx(mean("norms")).epsilon(1e-5));
  double largest = 0, moved = 0;
  for (const NamedParameter& p : model->Parameters()) {
    const auto expected = golden.at("weights").at(p.name).get<std::vector<double>>();
    const std::vector<float> start = FormulaWeights(p.name, p.value.numel(), 1.6f);
    const at::Tensor values = p.value.detach().contiguous();
    REQUIRE(static_cast<size_t>(values.numel()) == expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      const double now = values.const_data_ptr<float>()[i];
      largest = std::max(largest, std::abs(now - expected[i]));
      moved = std::max(moved, std::abs(expected[i] - static_cast<double>(start[i])));
    }
  }
  CHECK(largest < 1e-5);
  CHECK(moved > 1e-2);
}

}  // namespace
}  // namespace kevin::local
