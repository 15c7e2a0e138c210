// serial sum
extern "C" void launch(const float* x, const bool* mask, float* out) {
#pragma omp parallel for
  for (long b = 0; b < B; ++b) {
    float before = 0;
    for (long begin = 0; begin < N; begin += N) {
      float sum = 0;
      for (long n = begin; n < begin + N && n < N; ++n) {
        const long at = b * N + n;
        const float v = mask[at] ? x[at] : 0.0F;
        sum = sum + v;
        out[at] = before + sum;
      }
      before = before + sum;
    }
  }
}
