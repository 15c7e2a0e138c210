// Rows of the product in float, each rounded once.
#include <vector>
extern "C" void launch(const _Float16* a, const _Float16* b, _Float16* c) {
  std::vector<float> right(N * N);
  for (long i = 0; i < N * N; ++i) right[i] = b[i];
#pragma omp parallel for
  for (long m = 0; m < N; ++m) {
    float sums[N] = {};
    for (long k = 0; k < N; ++k) {
      const float left = a[m * N + k];
      for (long n = 0; n < N; ++n) sums[n] += left * right[k * N + n];
    }
    for (long n = 0; n < N; ++n) c[m * N + n] = (_Float16)sums[n];
  }
}
