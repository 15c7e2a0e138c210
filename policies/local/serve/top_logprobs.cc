#include "policies/local/serve/top_logprobs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kevin::local {
namespace {

TopLogprobs::Likely LikeliestOf(std::span<const float> logits, size_t count) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  count = std::min(count, ids.size());
  std::partial_sort(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(count), ids.end(), likelier);
  const double max = logits[static_cast<size_t>(ids[0])];
  double total = 0;
  for (const float logit : logits) total += std::exp(logit - max);
  TopLogprobs::Likely likely;
  for (size_t i = 0; i < count; ++i) {
    const double gap = logits[static_cast<size_t>(ids[i])] - max;
    likely.emplace_back(ids[i], static_cast<float>(gap - std::log(total)));
  }
  return likely;
}

}  // namespace

AnswerProcessor TopLogprobs::Recorder(int answer) {
  return [this, answer](std::span<const int32_t> so_far, std::span<float> logits) {
    Likely likely = LikeliestOf(logits, count_);
    const std::lock_guard lock(mutex_);
    seen_[{answer, so_far.size()}] = std::move(likely);
  };
}

TopLogprobs::Likely TopLogprobs::Take(int answer, size_t token) {
  const std::lock_guard lock(mutex_);
  auto found = seen_.extract({answer, token});
  return found ? std::move(found.mapped()) : Likely{};
}

}  // namespace kevin::local
