// two levels, blocks of 64
extern "C" void launch(const float* x, float* out) {
#pragma omp parallel for
  for (long b = 0; b < B; ++b) {
    float before = 1;
    for (long begin = 0; begin < N; begin += 64) {
      float sum = 1;
      for (long n = begin; n < begin + 64 && n < N; ++n) {
        const long at = b * N + n;
        const float v = x[at];
        sum = sum * v;
        out[at] = before * sum;
      }
      before = before * sum;
    }
  }
}
