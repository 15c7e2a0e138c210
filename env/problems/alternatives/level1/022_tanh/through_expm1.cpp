// through expm1
#include <cmath>

extern "C" void launch(const float* x, float* out) {
#pragma omp parallel for
  for (long i = 0; i < B * N; ++i) {
    const float e = std::expm1(-2 * std::abs(x[i]));
    out[i] = std::copysign(e / (e + 2), x[i]);
  }
}
