#include "policies/local/model/draw_tokens.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "policies/local/generate/sampler.h"

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

std::vector<SampledToken> DrawOnDevice(const at::Tensor& raw, std::span<const DrawRequest> requests) {
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

}  // namespace

std::vector<SampledToken> DrawTokens(const at::Tensor& logits, std::span<const DrawRequest> requests) {
  const bool processed = std::any_of(requests.begin(), requests.end(),
                                     [](const DrawRequest& r) { return r.processor != nullptr; });
  if (logits.is_cpu() || processed) return DrawOnCpu(logits, requests);
  return DrawOnDevice(logits, requests);
}

}  // namespace kevin::local
