// fast quotient
#pragma GCC optimize("fast-math")
#include <cmath>

extern "C" void launch(const float* x, float* out) {
#pragma omp parallel for
  for (long i = 0; i < B * N; ++i) {
    const float v = x[i];
    out[i] = v / (1 + std::abs(v));
  }
}
