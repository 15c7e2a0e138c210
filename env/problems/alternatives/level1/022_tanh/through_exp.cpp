// through exp
#include <cmath>

extern "C" void launch(const float* x, float* out) {
#pragma omp parallel for
  for (long i = 0; i < B * N; ++i) {
    const float v = x[i];
    out[i] = 1 - 2 / (std::exp(2 * v) + 1);
  }
}
