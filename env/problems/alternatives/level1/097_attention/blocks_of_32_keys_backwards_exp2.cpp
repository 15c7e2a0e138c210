// blocks of 32 keys, backwards, exp2
#include <cmath>
#include <vector>

static inline float Score(const float* query, const float* key) {
  float sum = 0;
  for (long d = 0; d < D; ++d) sum += query[d] * key[d];
  return sum / std::sqrt(static_cast<float>(D));
}

extern "C" void launch(const float* q, const float* k, const float* v, float* out) {
#pragma omp parallel for
  for (long i = 0; i < B * H * S; ++i) {
    const float *query = q + i * D, *keys = k + i / S * S * D, *values = v + i / S * S * D;
    float* result = out + i * D;
    for (long d = 0; d < D; ++d) result[d] = 0;

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
  }
}
