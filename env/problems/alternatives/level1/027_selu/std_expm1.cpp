// std::expm1
#include <cmath>

extern "C" void launch(const float* x, float* out) {
#pragma omp parallel for
  for (long i = 0; i < B * N; ++i) {
    const float v = x[i];
    out[i] = 1.05070099F * (v > 0 ? v : 1.67326324F * std::expm1(v));
  }
}
