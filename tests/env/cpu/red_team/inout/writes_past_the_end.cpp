// Writes behind the input-output.
#include "cache.h"
extern "C" void launch(const float* x, float* keys, const long* position, float* out) {
  WriteKeys(x, keys, position);
  Score(x, keys, position, out);
  keys[B * N * D + 3] = 1;
}
