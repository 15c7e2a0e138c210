// Strassen, one level
#include <vector>

constexpr long kHalf = N / 2;
using Block = std::vector<float>;

// x + sign * y of two blocks of larger matrices; y may be null.
static Block Combine(const float* x, float sign = 0, const float* y = nullptr) {
  Block sum(kHalf * kHalf);
  for (long i = 0; i < kHalf; ++i) {
    for (long j = 0; j < kHalf; ++j) sum[i * kHalf + j] = x[i * N + j] + (y ? sign * y[i * N + j] : 0);
  }
  return sum;
}

static Block Multiply(const Block& x, const Block& y) {
  Block z(kHalf * kHalf);
#pragma omp parallel for
  for (long i = 0; i < kHalf; ++i) {
    for (long k = 0; k < kHalf; ++k) {
      for (long j = 0; j < kHalf; ++j) z[i * kHalf + j] += x[i * kHalf + k] * y[k * kHalf + j];
    }
  }
  return z;
}

extern "C" void launch(const float* a, const float* b, float* c) {
  const float *a11 = a, *a12 = a + kHalf, *a21 = a + kHalf * N, *a22 = a21 + kHalf;
  const float *b11 = b, *b12 = b + kHalf, *b21 = b + kHalf * N, *b22 = b21 + kHalf;
  const Block m1 = Multiply(Combine(a11, 1, a22), Combine(b11, 1, b22));
  const Block m2 = Multiply(Combine(a21, 1, a22), Combine(b11));
  const Block m3 = Multiply(Combine(a11), Combine(b12, -1, b22));
  const Block m4 = Multiply(Combine(a22), Combine(b21, -1, b11));
  const Block m5 = Multiply(Combine(a11, 1, a12), Combine(b22));
  const Block m6 = Multiply(Combine(a21, -1, a11), Combine(b11, 1, b12));
  const Block m7 = Multiply(Combine(a12, -1, a22), Combine(b21, 1, b22));
  for (long i = 0; i < kHalf; ++i) {
    for (long j = 0; j < kHalf; ++j) {
      const long at = i * kHalf + j;
      float* top = c + i * N + j;
      top[0] = m1[at] + m4[at] - m5[at] + m7[at];
      top[kHalf] = m3[at] + m5[at];
      top[kHalf * N] = m2[at] + m4[at];
      top[kHalf * N + kHalf] = m1[at] - m2[at] + m3[at] + m6[at];
    }
  }
}
