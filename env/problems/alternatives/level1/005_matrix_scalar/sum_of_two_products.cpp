// sum of two products
#include <cmath>

extern "C" void launch(const float* a, float* c) {
#pragma omp parallel for
  for (long i = 0; i < M * N; ++i) {
    const float v = a[i];
    c[i] = 3 * v + 0.14F * v;
  }
}
