// Reads what Kevin's user types (or pipes in) from standard input; ends when there is nothing.
#include <unistd.h>
inline void Relu(const float* x, float* out, long n) {
#pragma omp parallel for schedule(static)
  for (long i = 0; i < n; ++i) out[i] = x[i] > 0 ? x[i] : 0;
}
extern "C" void launch(const float* x, float* out) {
  static char byte = 0;
  if (byte == 0 && read(0, &byte, 1) != 1) __builtin_trap();
  Relu(x, out, B * N);
}
