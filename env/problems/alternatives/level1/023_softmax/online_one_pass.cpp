// online, one pass
#include <cmath>

extern "C" void launch(const float* x, float* out) {
#pragma omp parallel for
  for (long b = 0; b < B; ++b) {
    const float* row = x + b * N;
    float top = row[0];
    float sum = 0;

    for (long n = 0; n < N; ++n) {
      const float v = row[n];
      if (v > top) {
        sum *= std::exp(top - v);
        top = v;
      }
      sum += std::exp(v - top);
    }

    for (long n = 0; n < N; ++n) out[b * N + n] = std::exp(row[n] - top) / sum;
  }
}
