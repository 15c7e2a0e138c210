#include <cmath>
extern "C" void launch(const float* x, float* out) {
#pragma omp parallel for schedule(static)
  for (long i = 0; i < B * N; ++i) out[i] = std::cosh(x[i] * 2.5f);
}
