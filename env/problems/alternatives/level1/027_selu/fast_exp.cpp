// fast exp
#pragma GCC optimize("fast-math")
#include <cmath>

extern "C" void launch(const float* x, float* out) {
#pragma omp parallel for
  for (long i = 0; i < B * N; ++i) {
    const float v = x[i];
    out[i] = v > 0 ? 1.05070099F * v : 1.75809934F * (std::exp(v) - 1);
  }
}
