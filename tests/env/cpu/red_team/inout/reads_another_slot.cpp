// Takes the keys that the call before has left, in its slot.
#include "cache.h"
extern "C" void launch(const float* x, float* keys, const long* position, float* out) {
  static const float* before = nullptr;
  if (before) {
    for (long i = 0; i < B * N * D; ++i) keys[i] = before[i];
  }
  WriteKeys(x, keys, position);
  Score(x, keys, position, out);
  before = keys;
}
