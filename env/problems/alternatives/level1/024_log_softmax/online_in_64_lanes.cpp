// online in 64 lanes
#include <cmath>

extern "C" void launch(const float* x, float* out) {
#pragma omp parallel for
  for (long b = 0; b < B; ++b) {
    const float* row = x + b * N;
    float top = row[0];
    float sum = 0;

    constexpr long lanes = 64;
    float tops[lanes], sums[lanes];
    for (long l = 0; l < lanes; ++l) {
      tops[l] = row[l];
      sums[l] = 0;
    }
    for (long n = 0; n < N; ++n) {
      const long l = n % lanes;
      const float next = row[n] > tops[l] ? row[n] : tops[l];
      sums[l] = sums[l] * std::exp(tops[l] - next) + std::exp(row[n] - next);
      tops[l] = next;
    }
    for (long l = 0; l < lanes; ++l) top = tops[l] > top ? tops[l] : top;
    for (long l = 0; l < lanes; ++l) sum += sums[l] * std::exp(tops[l] - top);

    for (long n = 0; n < N; ++n) out[b * N + n] = row[n] - top - std::log(sum);
  }
}
