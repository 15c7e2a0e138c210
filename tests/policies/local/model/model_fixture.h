#pragma once
// Models, prompts and plain loops of generation for the tests of the network.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "policies/local/model/language_model.h"
#include "policies/local/model/torch_runner.h"
#include "tests/policies/local/hashed_model.h"
#include "tests/support/fakes.h"

namespace kevin::testing {

inline local::ModelOptions Floats() {
  local::ModelOptions options;
  options.dtype = local::NumberType::kF32;
  return options;
}

inline std::unique_ptr<local::LanguageModel> HashedModel(const local::ModelConfig& config,
                                                         const local::ModelOptions& options = Floats()) {
  const TempFolder folder;
  WriteHashedModel(folder.path(), local::ConfigJson(config));
  return local::LoadLanguageModel(folder.path(), options);
}

inline std::vector<int32_t> HashedTokens(const std::string& name, int count, int vocabulary = 160) {
  std::vector<int32_t> tokens;
  for (const double number : HashedNumbers(name, count))
    tokens.push_back(static_cast<int32_t>((number + 1) / 2 * vocabulary));
  return tokens;
}

inline local::PackedTokens Pack(const std::vector<std::vector<int32_t>>& sequences) {
  std::vector<int64_t> ids, positions;
  local::PackedTokens packed;
  packed.starts = {0};
  for (const std::vector<int32_t>& sequence : sequences) {
    for (size_t i = 0; i < sequence.size(); ++i) positions.push_back(static_cast<int64_t>(i));
    ids.insert(ids.end(), sequence.begin(), sequence.end());
    packed.starts.push_back(static_cast<int64_t>(ids.size()));
  }
  packed.ids = at::tensor(ids, at::kLong);
  packed.positions = at::tensor(positions, at::kLong);
  return packed;
}

// [T, vocabulary], in float.
inline at::Tensor LogitsOf(local::LanguageModel& model, const std::vector<int32_t>& tokens) {
  const at::NoGradGuard no_gradients;
  return model.Logits(model.Hidden(Pack({tokens}))).to(at::kFloat);
}

inline double LargestDifference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

// The tokens that follow greedily, one sequence on the given pages.
inline std::vector<int32_t> Greedy(local::TorchRunner& runner, std::vector<int32_t> prompt, int count,
                                   const std::vector<int32_t>& pages) {
  std::vector<int32_t> drawn;
  int position = 0;
  while (static_cast<int>(drawn.size()) < count) {
    local::SequenceStep step;
    step.tokens = prompt;
    step.position = position;
    step.pages = pages;
    step.sample = true;
    step.sampling.temperature = 0;
    runner.Submit({&step, 1});
    position += static_cast<int>(prompt.size());
    drawn.push_back(runner.Wait().at(0).id);
    prompt = {drawn.back()};
  }
  return drawn;
}

}  // namespace kevin::testing
