// product of doubles
#include <cmath>

extern "C" void launch(const float* a, const float* b, float* c) {
#pragma omp parallel for
  for (long i = 0; i < N * M; ++i) {
    const float v = b[i];
    c[i] = static_cast<float>(static_cast<double>(a[i / M]) * v);
  }
}
