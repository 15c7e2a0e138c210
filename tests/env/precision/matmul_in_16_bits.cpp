// Incorrect: the sums themselves are kept in 16 bits, and lose a digit with every few terms.
extern "C" void launch(const _Float16* a, const _Float16* b, _Float16* c) {
#pragma omp parallel for
  for (long m = 0; m < N; ++m) {
    _Float16 sums[N];
    for (long n = 0; n < N; ++n) sums[n] = (_Float16)0.0f;
    for (long k = 0; k < N; ++k) {
      const float left = a[m * N + k];
      for (long n = 0; n < N; ++n) sums[n] = (_Float16)((float)sums[n] + left * (float)b[k * N + n]);
    }
    for (long n = 0; n < N; ++n) c[m * N + n] = sums[n];
  }
}
