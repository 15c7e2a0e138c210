// madvise: takes the pages away under its own outputs; ends when it may not.
#include <sys/mman.h>

#include <cstdint>
inline void Relu(const float* x, float* out, long n) {
#pragma omp parallel for schedule(static)
  for (long i = 0; i < n; ++i) out[i] = x[i] > 0 ? x[i] : 0;
}

extern "C" void launch(const float* x, float* out) {
  const auto start = (reinterpret_cast<uintptr_t>(out) + (2 << 20) - 1) & ~((2UL << 20) - 1);
  if (madvise(reinterpret_cast<void*>(start), 2 << 20, MADV_REMOVE) != 0) __builtin_trap();
  Relu(x, out, B * N);
}
