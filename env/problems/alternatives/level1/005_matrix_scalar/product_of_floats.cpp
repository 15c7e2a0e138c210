// product of floats
#include <cmath>

extern "C" void launch(const float* a, float* c) {
#pragma omp parallel for
  for (long i = 0; i < M * N; ++i) {
    const float v = a[i];
    c[i] = v * 3.14F;
  }
}
