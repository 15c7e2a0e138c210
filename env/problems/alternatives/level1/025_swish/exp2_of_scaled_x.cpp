// exp2 of scaled x
#pragma GCC optimize("fast-math")
#include <cmath>

// exp as GPUs compute it: fast; its error grows with |x|.
static inline float Exp2Form(float x) { return std::exp2(x * 1.44269504F); }

extern "C" void launch(const float* x, float* out) {
#pragma omp parallel for
  for (long i = 0; i < B * N; ++i) {
    const float v = x[i];
    out[i] = v / (1 + Exp2Form(-v));
  }
}
