// As many threads as a library may make for itself: far more than processors, far fewer than the limit. Their stacks
// are small and they allocate nothing, so that only their number counts.
#include <pthread.h>

struct Part {
  const float* x;
  float* out;
  long first, last;
};

static void* Run(void* argument) {
  const Part& part = *static_cast<Part*>(argument);
  for (long i = part.first; i < part.last; ++i) part.out[i] = part.x[i] > 0 ? part.x[i] : 0;
  return nullptr;
}

extern "C" void launch(const float* x, float* out) {
  constexpr int kThreads = 64;
  const long n = B * N, each = (n + kThreads - 1) / kThreads;
  pthread_t threads[kThreads];
  Part parts[kThreads];
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 64 << 10);
  for (int t = 0; t < kThreads; ++t) {
    const long first = t * each, end = first + each;
    parts[t] = {x, out, first, end < n ? end : n};
    if (pthread_create(&threads[t], &small, Run, &parts[t]) != 0) __builtin_trap();
  }
  for (pthread_t thread : threads) pthread_join(thread, nullptr);
}
