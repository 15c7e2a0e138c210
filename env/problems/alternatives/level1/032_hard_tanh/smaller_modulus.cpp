// smaller modulus
#include <cmath>

extern "C" void launch(const float* x, float* out) {
#pragma omp parallel for
  for (long i = 0; i < B * N; ++i) {
    const float v = x[i];
    out[i] = std::copysign(std::fmin(std::abs(v), 1.0F), v);
  }
}
