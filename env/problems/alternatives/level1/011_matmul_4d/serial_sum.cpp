// serial sum
#include <vector>

extern "C" void launch(const float* a, const float* b, float* c) {
  constexpr long rows = B * I * J, cols = N, depth = K, parts = 1;
#pragma omp parallel for
  for (long m = 0; m < rows; ++m) {
    std::vector<float> part(cols);
    for (long n = 0; n < cols; ++n) c[m * cols + n] = 0;
    for (long p = 0; p < parts; ++p) {
      for (long n = 0; n < cols; ++n) part[n] = 0;
      for (long k = p * depth / parts; k < (p + 1) * depth / parts; ++k) {
        for (long n = 0; n < cols; ++n) part[n] += a[m * depth + k] * b[k * cols + n];
      }
      for (long n = 0; n < cols; ++n) c[m * cols + n] += part[n];
    }
  }
}
