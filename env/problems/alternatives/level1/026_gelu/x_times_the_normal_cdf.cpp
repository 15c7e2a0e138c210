// x times the normal CDF
#include <cmath>

extern "C" void launch(const float* x, float* out) {
#pragma omp parallel for
  for (long i = 0; i < B * N; ++i) {
    const float v = x[i];
    out[i] = v * (0.5F + 0.5F * std::erf(v * 0.70710678F));
  }
}
