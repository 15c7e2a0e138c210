// backwards
#include <cmath>

struct Window {
  long batch, in, out, groups;
  long size[3], result[3], kernel[3], stride[3], pad[3], dilation[3];
};

// The input position of tap k of output o; -1 outside the input.
static inline long Place(const Window& w, int axis, long o, long k) {
  const long at = o * w.stride[axis] - w.pad[axis] + k * w.dilation[axis];
  return at >= 0 && at < w.size[axis] ? at : -1;
}

extern "C" void launch(const float* x, float* out) {
  const Window w = {B, C, C, 1, {1, 1, N}, {1, 1, N - 13}, {1, 1, 8}, {1, 1, 1}, {0, 0, 4}, {1, 1, 3}};
  const long taps = w.kernel[0] * w.kernel[1] * w.kernel[2];
  const long results = w.result[0] * w.result[1] * w.result[2];
#pragma omp parallel for
  for (long row = 0; row < w.batch * w.out; ++row) {
    const float* image = x + row * w.size[0] * w.size[1] * w.size[2];
    for (long i = 0; i < results; ++i) {
      float best = -INFINITY;
      for (long term = 0; term < taps; ++term) {
        const long t = taps - 1 - term;
        const long d = Place(w, 0, i / (w.result[1] * w.result[2]), t / (w.kernel[1] * w.kernel[2]));
        const long h = Place(w, 1, i / w.result[2] % w.result[1], t / w.kernel[2] % w.kernel[1]);
        const long at = Place(w, 2, i % w.result[2], t % w.kernel[2]);
        if (d < 0 || h < 0 || at < 0) continue;
        const float value = image[(d * w.size[1] + h) * w.size[2] + at];
        best = value > best ? value : best;
      }
      out[row * results + i] = best;
    }
  }
}
