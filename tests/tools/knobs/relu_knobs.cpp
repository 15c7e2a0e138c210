// A rectifier whose knobs matter: REPEAT is how often the work is done, SHIFT is right only if 0, and MODE 2 does not
// compile.
// knob REPEAT: 24 6 1
// knob SHIFT: 0 1
// knob MODE: 1 2
#include <cstddef>

static_assert(MODE == 1, "this mode does not compile");

extern "C" void launch(const float* x, float* out) {
  const long count = long(B) * N;
  for (int repeat = 0; repeat < REPEAT; ++repeat) {
#pragma omp parallel for
    for (long i = 0; i < count; ++i) {
      const float value = x[i] > 0 ? x[i] : 0;
      reinterpret_cast<volatile float*>(out)[i] = value + SHIFT;
    }
  }
}
