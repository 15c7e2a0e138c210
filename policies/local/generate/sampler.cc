#include "policies/local/generate/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace kevin::local {
namespace {

constexpr float kLeast = -std::numeric_limits<float>::infinity();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr size_t kBlock = 256, kLanes = 32;

// e^x for x <= 0; 0 where the result is subnormal. Additions and products only, so that the compiler
// vectorises it and every machine computes the same bits.
inline float Exp(float x) {
  constexpr float kLowest = -87.0f, kRounder = 12582912.0f;  // 1.5 * 2^23
  const float clamped = x < kLowest ? kLowest : x;
  const float shifted = clamped * 1.44269504f + kRounder;
  const float whole = shifted - kRounder;
  const float r = (clamped - whole * 0.693359375f) + whole * 2.12194440e-4f;
  float p = 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const uint32_t exponent = (std::bit_cast<uint32_t>(shifted) + 127u) << 23;
  return x < kLowest ? 0.0f : p * std::bit_cast<float>(exponent);
}

using Block = std::array<float, kBlock>;

// Wider vectors if the processor has them; the order of sums, and so their bits, stays.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define KEVIN_WIDEST_VECTORS __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define KEVIN_WIDEST_VECTORS
#endif

struct Filter {
  float max, least, inverse_temperature;
  float Weight(float logit) const {
    const float weight = Exp((logit - max) * inverse_temperature);
    return (logit >= least) & (logit <= max) ? weight : 0.0f;
  }
};

// Of the finite logits.
KEVIN_WIDEST_VECTORS float Maximum(const float* block) {
  std::array<float, kLanes> lanes;
  lanes.fill(kLeast);
  for (size_t i = 0; i < kBlock; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float logit = block[i + lane] < kInfinity ? block[i + lane] : kLeast;
      lanes[lane] = logit > lanes[lane] ? logit : lanes[lane];
    }
  }
  for (size_t width = kLanes / 2; width > 0; width /= 2) {
    for (size_t lane = 0; lane < width; ++lane)
      lanes[lane] = lanes[lane + width] > lanes[lane] ? lanes[lane + width] : lanes[lane];
  }
  return lanes[0];
}

KEVIN_WIDEST_VECTORS float SumOf(const float* block, const Filter& filter) {
  std::array<float, kLanes> lanes{};
  for (size_t i = 0; i < kBlock; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += filter.Weight(block[i + lane]);
  }
  for (size_t width = kLanes / 2; width > 0; width /= 2) {
    for (size_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

// The logits of one draw in blocks, and those that the filters kept.
class Draw {
 public:
  explicit Draw(std::span<const float> logits)
      : logits_(logits), maxima_((logits.size() + kBlock - 1) / kBlock) {
    Block copy;
    for (size_t b = 0; b < maxima_.size(); ++b) maxima_[b] = Maximum(Load(b, &copy));
    if (!maxima_.empty()) filter_.max = *std::max_element(maxima_.begin(), maxima_.end());
  }

  float max() const { return filter_.max; }
  float inverse_temperature() const { return filter_.inverse_temperature; }
  void SetTemperature(float temperature) { filter_.inverse_temperature = 1 / temperature; }
  bool IsWhole() const { return filter_.inverse_temperature == 1 && filter_.least == kLeast; }
  void KeepFrom(float logit) { filter_.least = std::max(filter_.least, logit); }

  // Of e^((logit - max) / temperature) over what is kept; each block's share in `sums`.
  double Total(std::vector<double>* sums) const {
    sums->assign(maxima_.size(), 0.0);
    Block copy;
    double total = 0;
    for (size_t b = 0; b < maxima_.size(); ++b) {
      if (maxima_[b] < filter_.least || maxima_[b] == kLeast) continue;
      (*sums)[b] = SumOf(Load(b, &copy), filter_);
      total += (*sums)[b];
    }
    return total;
  }

  float Weight(float logit) const { return filter_.Weight(logit); }

  // Calls visit(logit) for all from `logit` on that are kept.
  template <typename Visit>
  void ForEachFrom(float logit, Visit visit) const {
    const float from = std::max(logit, filter_.least);
    for (size_t b = 0; b < maxima_.size(); ++b) {
      if (maxima_[b] < from) continue;
      const size_t end = std::min(logits_.size(), (b + 1) * kBlock);
      for (size_t i = b * kBlock; i < end; ++i) {
        if (logits_[i] >= from && logits_[i] <= filter_.max) visit(logits_[i]);
      }
    }
  }

  // A lower bound of the count-th largest logit, close to it.
  float ReachedBy(size_t count) const {
    if (count > maxima_.size()) return kLeast;
    std::vector<float> maxima = maxima_;
    const auto nth = maxima.begin() + static_cast<ptrdiff_t>(count) - 1;
    std::nth_element(maxima.begin(), nth, maxima.end(), std::greater<>());
    return *nth;
  }

  size_t IndexOfMax() const {
    const size_t b =
        static_cast<size_t>(std::find(maxima_.begin(), maxima_.end(), filter_.max) - maxima_.begin());
    size_t i = b * kBlock;
    while (logits_[i] != filter_.max) ++i;
    return i;
  }

  // The first token at which the weights up to it exceed `target`; the last token if rounding lets none
  // exceed it.
  size_t IndexAt(double target, const std::vector<double>& sums) const {
    size_t last = 0;
    double sum = 0;
    for (size_t b = 0; b < sums.size(); ++b) {
      if (sums[b] == 0) continue;
      const bool here = sum + sums[b] > target;
      const size_t end = std::min(logits_.size(), (b + 1) * kBlock);
      double within = sum;
      for (size_t i = b * kBlock; i < end; ++i) {
        const float weight = Weight(logits_[i]);
        if (weight == 0) continue;
        last = i;
        within += weight;
        if (here && within > target) return i;
      }
      if (here) return last;
      sum += sums[b];
    }
    return last;
  }

 private:
  // The block where it lies, or the last one filled up in `copy`.
  const float* Load(size_t b, Block* copy) const {
    const size_t begin = b * kBlock;
    if (begin + kBlock <= logits_.size()) return logits_.data() + begin;
    copy->fill(kLeast);
    std::copy(logits_.begin() + static_cast<ptrdiff_t>(begin), logits_.end(), copy->begin());
    return copy->data();
  }

  const std::span<const float> logits_;
  std::vector<float> maxima_;  // of each block, over finite logits
  Filter filter_{kLeast, kLeast, 1};
};

struct Candidate {
  float logit;
  double measure;
};

// The largest logit such that the weights of all logits not below it sum to `target`.
float Select(std::vector<Candidate>* candidates, double target) {
  constexpr size_t kBins = 1024, kFew = 48;
  double above = 0;
  while (true) {
    std::vector<Candidate>& c = *candidates;
    const auto by_logit = [](const Candidate& a, const Candidate& b) { return a.logit < b.logit; };
    const auto [low, high] = std::minmax_element(c.begin(), c.end(), by_logit);
    const float top = high->logit, bottom = low->logit;
    if (top == bottom) return top;
    if (c.size() <= kFew) {
      std::sort(c.begin(), c.end(), [&](const Candidate& a, const Candidate& b) { return by_logit(b, a); });
      for (const Candidate& candidate : c) {
        above += candidate.measure;
        if (above >= target) return candidate.logit;
      }
      return bottom;
    }
    const double scale = (kBins - 1) / (static_cast<double>(top) - bottom);
    const auto bin_of = [&](float logit) {
      return static_cast<size_t>((static_cast<double>(top) - logit) * scale);
    };
    std::array<double, kBins> bins{};
    for (const Candidate& candidate : c) bins[bin_of(candidate.logit)] += candidate.measure;
    size_t bin = 0;
    while (bin + 1 < kBins && above + bins[bin] < target) above += bins[bin++];
    std::erase_if(c, [&](const Candidate& candidate) { return bin_of(candidate.logit) != bin; });
    if (c.empty()) return bottom;
  }
}

void KeepTopK(size_t k, Draw* draw) {
  std::vector<Candidate> candidates;
  draw->ForEachFrom(draw->ReachedBy(k), [&](float logit) { candidates.push_back({logit, 1.0}); });
  draw->KeepFrom(Select(&candidates, static_cast<double>(k)));
}

// A token less likely than an equal share of 1 - top_p is never needed to reach top_p.
void KeepTopP(double top_p, size_t count, Draw* draw) {
  std::vector<double> sums;
  const double total = draw->Total(&sums);
  const double share = std::log((1 - top_p) * total / static_cast<double>(count)) - 1e-3;
  const float from = static_cast<float>(draw->max() + share / draw->inverse_temperature());
  std::vector<Candidate> candidates;
  draw->ForEachFrom(from, [&](float logit) { candidates.push_back({logit, draw->Weight(logit)}); });
  draw->KeepFrom(Select(&candidates, top_p * total));
}

void Keep(const TokenSampling& sampling, size_t count, Draw* draw) {
  draw->SetTemperature(sampling.temperature);
  if (sampling.top_k > 0 && static_cast<size_t>(sampling.top_k) < count)
    KeepTopK(static_cast<size_t>(sampling.top_k), draw);
  if (sampling.top_p < 1) KeepTopP(std::max(0.0f, sampling.top_p), count, draw);
  if (sampling.min_p > 0)
    draw->KeepFrom(draw->max() + sampling.temperature * std::log(std::min(1.0f, sampling.min_p)));
}

}  // namespace

SampledToken Sample(std::span<const float> logits, const TokenSampling& sampling, int position) {
  Draw draw(logits);
  if (draw.max() == kLeast) return {};
  std::vector<double> sums;
  const double model_total = draw.Total(&sums);
  SampledToken token;
  if (sampling.temperature <= 0) {
    token.id = static_cast<int32_t>(draw.IndexOfMax());
    token.model_logprob = static_cast<float>(-std::log(model_total));
    return token;
  }
  Keep(sampling, logits.size(), &draw);
  const double total = draw.IsWhole() ? model_total : draw.Total(&sums);
  const double u = UniformAt(sampling.seed, static_cast<uint64_t>(position));
  const size_t index = draw.IndexAt(u * total, sums);
  const double gap = static_cast<double>(logits[index]) - draw.max();
  token.id = static_cast<int32_t>(index);
  token.logprob = static_cast<float>(gap / sampling.temperature - std::log(total));
  token.model_logprob = static_cast<float>(gap - std::log(model_total));
  return token;
}

}  // namespace kevin::local
