// Allocates and frees its scratch memory in every call, and prints a line to stderr.
#include <cstdio>
#include <vector>
extern "C" void launch(const float* x, float* out) {
  std::vector<float> scratch(N);
  std::fprintf(stderr, ".");
  for (long b = 0; b < B; ++b) {
    for (long i = 0; i < N; ++i) scratch[i] = x[b * N + i] > 0 ? x[b * N + i] : 0;
    for (long i = 0; i < N; ++i) out[b * N + i] = scratch[i];
  }
}
