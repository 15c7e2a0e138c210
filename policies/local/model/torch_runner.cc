#include "policies/local/model/torch_runner.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "env/error.h"
#include "policies/local/generate/sampler.h"
#include "policies/local/model/attention.h"
#include "policies/local/model/device.h"

namespace kevin::local {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<SampledToken> DrawOnCpu(const at::Tensor& logits, std::span<const DrawRequest> requests) {
  at::Tensor floats = logits.to(at::kCPU, at::kFloat).contiguous();
  const size_t vocabulary = static_cast<size_t>(floats.size(1));
  std::vector<SampledToken> drawn;
  for (const DrawRequest& request : requests) {
    const std::span<float> row(floats.mutable_data_ptr<float>() + drawn.size() * vocabulary, vocabulary);
    if (request.processor) (*request.processor)(row);
    drawn.push_back(Sample(row, request.sampling, request.position));
  }
  return drawn;
}

// One number of each request, as a column on the device.
template <typename Get>
at::Tensor Column(std::span<const DrawRequest> requests, at::Device device, const Get& get) {
  std::vector<double> numbers;
  for (const DrawRequest& request : requests) numbers.push_back(static_cast<double>(get(request)));
  return at::tensor(numbers, at::kDouble).to(device).unsqueeze(1);
}

// The least probability that the filters keep, a column; `shares` are probabilities [n, vocabulary].
at::Tensor Threshold(const at::Tensor& shares, std::span<const DrawRequest> requests) {
  const at::Device device = shares.device();
  const int64_t vocabulary = shares.size(1);
  const auto any = [&](auto is) { return std::any_of(requests.begin(), requests.end(), is); };
  const at::Tensor min_p = Column(requests, device, [](const auto& r) { return r.sampling.min_p; });
  at::Tensor threshold = shares.amax(1, true) * min_p;
  if (!any([](const auto& r) { return r.sampling.top_k > 0 || r.sampling.top_p < 1; })) return threshold;
  const at::Tensor sorted = std::get<0>(shares.sort(1, true));
  const at::Tensor top_k = Column(requests, device, [&](const auto& r) {
    return r.sampling.top_k > 0 ? std::min<int64_t>(r.sampling.top_k, vocabulary) : vocabulary;
  });
  const at::Tensor least = sorted.gather(1, (top_k - 1).to(at::kLong));
  const at::Tensor sums = at::where(sorted.ge(least), sorted, 0).cumsum(1);
  const at::Tensor top_p =
      Column(requests, device, [](const auto& r) { return std::min(1.0f, r.sampling.top_p); });
  const at::Tensor wanted = top_p * sums.narrow(1, vocabulary - 1, 1);
  const at::Tensor last = at::searchsorted(sums, wanted).clamp_max(vocabulary - 1);
  const at::Tensor reached = at::where(top_p.ge(1), at::zeros_like(wanted), sorted.gather(1, last));
  return at::maximum(threshold, at::maximum(least, reached));
}

}  // namespace

std::vector<SampledToken> DrawByOperators(const at::Tensor& raw, std::span<const DrawRequest> requests) {
  const at::Device device = raw.device();
  at::Tensor logits = raw.to(at::kDouble);
  logits = at::where(logits.isfinite(), logits, -kInfinity);
  const at::Tensor temperature =
      Column(requests, device, [](const auto& r) { return r.sampling.temperature; });
  const at::Tensor greedy = temperature.eq(0);
  const at::Tensor shares = at::softmax(logits / at::where(greedy, 1.0, temperature), 1);
  const at::Tensor kept = at::where(shares.ge(Threshold(shares, requests)), shares, 0.0);
  const at::Tensor sums = kept.cumsum(1);
  const at::Tensor total = sums.narrow(1, sums.size(1) - 1, 1);
  const at::Tensor uniform = Column(requests, device, [](const auto& r) {
    return UniformAt(r.sampling.seed, static_cast<uint64_t>(r.position));
  });
  const at::Tensor drawn =
      at::searchsorted(sums, uniform * total, false, /*right=*/true).clamp_max(sums.size(1) - 1);
  const at::Tensor ids = at::where(greedy, logits.argmax(1, true), drawn);
  const at::Tensor logprobs = at::where(greedy, 0.0, (kept.gather(1, ids) / total).log());
  const at::Tensor model_logprobs = at::log_softmax(logits, 1).gather(1, ids);
  const at::Tensor drawable = logits.amax(1, true).gt(-kInfinity);
  const at::Tensor table =
      at::cat({at::where(drawable, ids, -1).to(at::kDouble), logprobs, model_logprobs}, 1).cpu();
  std::vector<SampledToken> tokens;
  for (int64_t row = 0; row < table.size(0); ++row) {
    const double* numbers = table.const_data_ptr<double>() + row * 3;
    tokens.push_back(
        {static_cast<int32_t>(numbers[0]), static_cast<float>(numbers[1]), static_cast<float>(numbers[2])});
  }
  return tokens;
}

std::vector<SampledToken> DrawTokens(const at::Tensor& logits, std::span<const DrawRequest> requests) {
  const bool processed = std::any_of(requests.begin(), requests.end(),
                                     [](const DrawRequest& r) { return r.processor != nullptr; });
  if (logits.is_cpu() || processed) return DrawOnCpu(logits, requests);
  return DrawByOperators(logits, requests);
}

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
  MakeCache();
}

void TorchRunner::MakeCache() {
  const ModelConfig& config = model_.Config();
  cache_.numbers = WithTorchErrors("making the cache", [&] {
    const at::TensorOptions numbers =
        at::TensorOptions(TorchType(model_.Options().dtype)).device(model_.Options().device);
    return at::zeros({config.layers, 2, cache_.pages, cache_.page_tokens, config.kv_heads, config.head_dim},
                     numbers);
  });
}

// Through the driver: torch would cut the freed memory into pieces, and not find so large a block again.
void TorchRunner::GiveUpCache() {
  cache_.numbers = at::Tensor();
  ReturnFreeMemory(model_.Options().device);
}

void TorchRunner::WeightsChanged() {
  if (cache_.numbers.defined()) return;
  ReturnFreeMemory(model_.Options().device);
  MakeCache();
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
