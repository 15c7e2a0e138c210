// The quotient as books write it: infinity by infinity above 44.
#include <cmath>

extern "C" void launch(const float* x, float* out) {
#pragma omp parallel for
  for (long i = 0; i < B * N; ++i) {
    const float e = std::exp(2 * x[i]);
    out[i] = (e - 1) / (e + 1);
  }
}
