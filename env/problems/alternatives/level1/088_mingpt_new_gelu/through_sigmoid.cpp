// through sigmoid
#include <cmath>

extern "C" void launch(const float* x, float* out) {
#pragma omp parallel for
  for (long i = 0; i < B * N; ++i) {
    const float v = x[i];
    out[i] = v / (1 + std::exp(-2 * v * (0.797884561F + 0.0356774081F * (v * v))));
  }
}
