// std::erfc
#include <cmath>

extern "C" void launch(const float* x, float* out) {
#pragma omp parallel for
  for (long i = 0; i < B * N; ++i) {
    const float v = x[i];
    out[i] = 0.5F * v * std::erfc(-v * 0.70710678F);
  }
}
