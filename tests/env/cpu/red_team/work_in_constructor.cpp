// Spends a second of CPU while it is being loaded.
#include <time.h>
inline void Relu(const float* x, float* out, long n) {
#pragma omp parallel for schedule(static)
  for (long i = 0; i < n; ++i) out[i] = x[i] > 0 ? x[i] : 0;
}

__attribute__((constructor)) static void Begin() {
  timespec t;
  do {
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  } while (t.tv_sec < 1);
}
extern "C" void launch(const float* x, float* out) { Relu(x, out, B * N); }
