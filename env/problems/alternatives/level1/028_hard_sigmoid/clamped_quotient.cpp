// clamped quotient
#include <cmath>

extern "C" void launch(const float* x, float* out) {
#pragma omp parallel for
  for (long i = 0; i < B * N; ++i) {
    const float v = x[i];
    out[i] = std::fmin(std::fmax(v + 3, 0.0F), 6.0F) / 6;
  }
}
