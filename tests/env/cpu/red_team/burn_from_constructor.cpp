// As burn_all_the_time, but the thread starts while the kernel is being loaded.
#include <thread>
inline void Relu(const float* x, float* out, long n) {
#pragma omp parallel for schedule(static)
  for (long i = 0; i < n; ++i) out[i] = x[i] > 0 ? x[i] : 0;
}

__attribute__((constructor)) static void Begin() {
  std::thread([] {
    for (;;) asm volatile("");
  }).detach();
}
extern "C" void launch(const float* x, float* out) { Relu(x, out, B * N); }
