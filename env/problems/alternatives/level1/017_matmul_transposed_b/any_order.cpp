// any order (fast-math)
#pragma GCC optimize("fast-math")
extern "C" void launch(const float* a, const float* b, float* c) {
  constexpr long rows = M, cols = N, depth = K, parts = 1;
#pragma omp parallel for
  for (long m = 0; m < rows; ++m) {
    for (long n = 0; n < cols; ++n) {
      float sum = 0;
      for (long p = 0; p < parts; ++p) {
        float part = 0;
        for (long k = p * depth / parts; k < (p + 1) * depth / parts; ++k)
          part += a[m * depth + k] * b[n * depth + k];
        sum += part;
      }
      c[m * cols + n] = sum;
    }
  }
}
