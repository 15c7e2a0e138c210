#include "policies/local/model/torch_runner.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>

#include "env/error.h"
#include "policies/local/model/draw_tokens.h"
#include "policies/local/model/paged_attention.h"
#include "policies/local/model/torch_errors.h"

namespace kevin::local {

TorchRunner::TorchRunner(LanguageModel& model, const TorchRunnerOptions& options) : model_(model) {
  if (options.pages < 1 || options.page_tokens < 1)
    throw Error(ExitCode::kBadRequest, "the cache needs at least one page of at least one token");
  const ModelConfig& config = model.Config();
  const int64_t tokens = static_cast<int64_t>(options.pages) * options.page_tokens;
  const int64_t table = model.GetWeights().rope_cos.size(0);
  const int64_t wanted = options.context_tokens > 0 ? options.context_tokens : config.context;
  shape_.vocabulary = config.vocabulary;
  shape_.context_tokens = static_cast<int>(std::min({wanted, tokens, table}));
  shape_.page_tokens = options.page_tokens;
  shape_.pages = options.pages;
  shape_.step_sequences = options.step_sequences;
  shape_.step_tokens = options.step_tokens;
  cache_.page_tokens = options.page_tokens;
  cache_.pages = options.pages;
  cache_.numbers = WithTorchErrors("making the cache", [&] {
    const at::TensorOptions numbers =
        at::TensorOptions(TorchType(model.Options().dtype)).device(model.Options().device);
    return at::zeros({config.layers, 2, options.pages, options.page_tokens, config.kv_heads, config.head_dim},
                     numbers);
  });
}

int32_t TorchRunner::LastToken(int64_t sequence) const {
  const auto found = last_.find(sequence);
  if (found == last_.end())
    throw Error(ExitCode::kBroken, fmt::format("sequence {} drew no token in the step before", sequence));
  return found->second;
}

at::Tensor TorchRunner::Hidden(std::span<const SequenceStep> steps) {
  std::vector<int64_t> ids, positions, sampled;
  std::vector<PagedSequence> sequences;
  for (const SequenceStep& step : steps) {
    const int64_t first = static_cast<int64_t>(ids.size());
    ids.insert(ids.end(), step.tokens.begin(), step.tokens.end());
    if (step.tokens.empty()) ids.push_back(LastToken(step.sequence));
    const int64_t tokens = static_cast<int64_t>(ids.size()) - first;
    for (int64_t i = 0; i < tokens; ++i) positions.push_back(step.position + i);
    sequences.push_back({step.pages, step.position, first, tokens});
    if (step.sample) sampled.push_back(first + tokens - 1);
  }
  const at::Device device = model_.Options().device;
  const PagedAttention attention(cache_, std::move(sequences));
  const Attend attend = [&](int layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    return attention.Attend(layer, q, k, v);
  };
  const at::Tensor hidden = model_.Hidden(at::tensor(ids, at::kLong).to(device),
                                          at::tensor(positions, at::kLong).to(device), attend);
  if (sampled.size() == ids.size()) return hidden;
  return hidden.index_select(0, at::tensor(sampled, at::kLong).to(device));
}

std::vector<SampledToken> TorchRunner::Draw(std::span<const SequenceStep> steps, const at::Tensor& hidden) {
  std::vector<DrawRequest> requests;
  for (const SequenceStep& step : steps) {
    const int tokens = std::max(1, static_cast<int>(step.tokens.size()));
    if (step.sample) requests.push_back({step.sampling, step.position + tokens, step.processor});
  }
  if (requests.empty()) return {};
  return DrawTokens(model_.Logits(hidden), requests);
}

void TorchRunner::Submit(std::span<const SequenceStep> steps) {
  const c10::InferenceMode inference;
  std::vector<SampledToken> drawn =
      WithTorchErrors("running a step", [&] { return Draw(steps, Hidden(steps)); });
  last_.clear();
  size_t next = 0;
  for (const SequenceStep& step : steps) {
    if (step.sample) last_[step.sequence] = drawn[next++].id;
  }
  drawn_ = std::move(drawn);
}

std::vector<SampledToken> TorchRunner::Wait() {
  std::vector<SampledToken> drawn = std::move(drawn_.value());
  drawn_.reset();
  return drawn;
}

void TorchRunner::CopyPage(int from, int to) {
  const c10::InferenceMode inference;
  WithTorchErrors("copying a page", [&] {
    at::Tensor target = cache_.numbers.select(2, to);
    return target.copy_(cache_.numbers.select(2, from));
  });
}

}  // namespace kevin::local
