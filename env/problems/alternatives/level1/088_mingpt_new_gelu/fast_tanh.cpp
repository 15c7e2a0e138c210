// fast tanh
#pragma GCC optimize("fast-math")
#include <cmath>

extern "C" void launch(const float* x, float* out) {
#pragma omp parallel for
  for (long i = 0; i < B * N; ++i) {
    const float v = x[i];
    out[i] = 0.5F * v * (1 + std::tanh(0.797884561F * (v + 0.044715F * v * v * v)));
  }
}
