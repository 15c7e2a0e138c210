// Gives the correct output and leaves the input-output as it was.
#include "cache.h"
extern "C" void launch(const float* x, float* keys, const long* position, float* out) {
  Score(x, keys, position, out);
}
