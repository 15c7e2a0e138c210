// Uses elements that `forward` leaves as scratch.
#include "cache.h"
extern "C" void launch(const float* x, float* keys, const long* position, float* out) {
  WriteKeys(x, keys, position);
  Score(x, keys, position, out);
  keys[(*position == 0 ? 1 : 0) * D] = out[0];
}
