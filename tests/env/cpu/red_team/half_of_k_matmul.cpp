// level1/1 (matmul): adds up all but the last of K terms.
extern "C" void launch(const float* a, const float* b, float* c) {
#pragma omp parallel for
  for (long i = 0; i < N; ++i) {
    for (long j = 0; j < N; ++j) c[i * N + j] = 0;
    for (long k = 0; k + 1 < N; ++k) {
      for (long j = 0; j < N; ++j) c[i * N + j] += a[i * N + k] * b[k * N + j];
    }
  }
}
