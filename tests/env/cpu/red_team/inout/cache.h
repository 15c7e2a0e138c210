// For attacks on an input-output: the honest call in two parts. The test pastes this text in place of #include "cache.h".
inline void WriteKeys(const float* x, float* keys, const long* position) {
  for (long b = 0; b < B; ++b) {
    for (long d = 0; d < D; ++d) keys[(b * N + *position) * D + d] = x[b * D + d];
  }
}

// The scores of the keys as they will be, written or not.
inline void Score(const float* x, const float* keys, const long* position, float* out) {
  for (long b = 0; b < B; ++b) {
    for (long n = 0; n < N; ++n) {
      const float* key = n == *position ? x + b * D : keys + (b * N + n) * D;
      float sum = 0;
      for (long d = 0; d < D; ++d) sum += key[d] * x[b * D + d];
      out[b * N + n] = sum;
    }
  }
}
