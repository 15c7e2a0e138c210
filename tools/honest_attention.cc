#include "tools/honest_families.h"

namespace kevin {
namespace {

// One query after the other; $ROW fills `out` from `query`, `keys`, `values`.
constexpr const char* kText = R"(#include <cmath>
#include <vector>

static inline float Score(const float* query, const float* key) {
  float sum = 0;
  for (long d = 0; d < D; ++d) sum += query[d] * key[d];
  return sum / std::sqrt(static_cast<float>(D));
}

$LAUNCH {
#pragma omp parallel for
  for (long i = 0; i < B * H * S; ++i) {
    const float *query = q + i * D, *keys = k + i / S * S * D, *values = v + i / S * S * D;
    float* result = out + i * D;
    for (long d = 0; d < D; ++d) result[d] = 0;
$ROW
  }
}
)";

constexpr const char* kWhole = R"(
    std::vector<float> weight(S);
    float top = -INFINITY, sum = 0;
    for (long s = 0; s < S; ++s) {
      weight[s] = Score(query, keys + s * D);
      top = weight[s] > top ? weight[s] : top;
    }
    for (float& w : weight) sum += w = std::exp(w - top);
    for (long s = 0; s < S; ++s) {
      const float share = weight[s] / sum;
      for (long d = 0; d < D; ++d) result[d] += share * values[s * D + d];
    }
)";

// The weights are never kept: what was added up is scaled when a larger score comes.
constexpr const char* kOnline = R"(
    float top = -INFINITY, sum = 0;
    for (long s = 0; s < S; ++s) {
      const float score = Score(query, keys + s * D);
      if (score > top) {
        const float shrink = std::exp(top - score);
        sum *= shrink;
        for (long d = 0; d < D; ++d) result[d] *= shrink;
        top = score;
      }
      const float weight = std::exp(score - top);
      sum += weight;
      for (long d = 0; d < D; ++d) result[d] += weight * values[s * D + d];
    }
    for (long d = 0; d < D; ++d) result[d] /= sum;
)";

// Keys in blocks of 32 from the last to the first, exp2 of scaled scores: as kernels for GPUs go about it.
constexpr const char* kBlocks = R"(
    constexpr long block = 32;
    float top = -INFINITY, sum = 0;
    for (long end = S; end > 0; end -= block) {
      const long begin = end > block ? end - block : 0;
      float scores[block], next = top;
      for (long s = begin; s < end; ++s) {
        scores[s - begin] = Score(query, keys + s * D) * 1.44269504F;
        next = scores[s - begin] > next ? scores[s - begin] : next;
      }
      const float shrink = std::exp2(top - next);
      sum *= shrink;
      for (long d = 0; d < D; ++d) result[d] *= shrink;
      top = next;
      for (long s = begin; s < end; ++s) {
        const float weight = std::exp2(scores[s - begin] - top);
        sum += weight;
        for (long d = 0; d < D; ++d) result[d] += weight * values[s * D + d];
      }
    }
    for (long d = 0; d < D; ++d) result[d] *= 1 / sum;
)";

}  // namespace

std::vector<HonestKernel> HonestAttention(const Problem& problem) {
  if (problem.id != "level1/97") return {};
  return {{"scores, softmax, product", HonestSource(problem, kText, {{"ROW", kWhole}})},
          {"online softmax", HonestSource(problem, kText, {{"ROW", kOnline}})},
          {"blocks of 32 keys, backwards, exp2", HonestSource(problem, kText, {{"ROW", kBlocks}})}};
}

}  // namespace kevin
