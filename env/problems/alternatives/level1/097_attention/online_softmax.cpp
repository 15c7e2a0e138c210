// online softmax
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
  }
}
