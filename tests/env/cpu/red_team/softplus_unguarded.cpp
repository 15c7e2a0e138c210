// The formula as it stands: infinite above 88.
#include <cmath>

extern "C" void launch(const float* x, float* out) {
#pragma omp parallel for
  for (long i = 0; i < B * N; ++i) out[i] = std::log1p(std::exp(x[i]));
}
