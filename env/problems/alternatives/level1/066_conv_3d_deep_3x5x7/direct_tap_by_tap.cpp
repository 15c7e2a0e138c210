// direct, tap by tap
#include <vector>

struct Window {
  long batch, in, out, groups;
  long size[3], result[3], kernel[3], stride[3], pad[3], dilation[3];
};

// The input position of tap k of output o; -1 outside the input.
static inline long Place(const Window& w, int axis, long o, long k) {
  const long at = o * w.stride[axis] - w.pad[axis] + k * w.dilation[axis];
  return at >= 0 && at < w.size[axis] ? at : -1;
}

// The input position that adds to output o of a transposed convolution through tap k; -1: none.
static inline long Source(const Window& w, int axis, long o, long k) {
  const long at = o + w.pad[axis] - k * w.dilation[axis];
  return at >= 0 && at % w.stride[axis] == 0 && at / w.stride[axis] < w.size[axis] ? at / w.stride[axis] : -1;
}

static void AddRow(const Window& w, bool transposed, float weight, long k, const float* x, float* sum) {
  if (transposed) {
    for (long i = 0; i < w.size[2]; ++i) {
      const long o = i * w.stride[2] - w.pad[2] + k * w.dilation[2];
      if (o >= 0 && o < w.result[2]) sum[o] += weight * x[i];
    }
    return;
  }
  for (long o = 0; o < w.result[2]; ++o) {
    const long i = Place(w, 2, o, k);
    if (i >= 0) sum[o] += weight * x[i];
  }
}

// One row of one output channel; the weight of channel c and tap t is weights[c * step + t].
static void WindowRow(const Window& w, bool transposed, const float* x, const float* weights, long step,
                      long d, long h, float* sum) {
  const long channels = w.in / w.groups, taps = w.kernel[0] * w.kernel[1] * w.kernel[2],
             terms = channels * taps;
  const long plane = w.size[1] * w.size[2], parts = 1 < terms ? 1 : terms;
  std::vector<float> part(w.result[2]);
  for (long p = 0; p < parts; ++p) {
    for (float& value : part) value = 0;
    for (long term = p * terms / parts; term < (p + 1) * terms / parts; ++term) {
      const long c = term % channels, t = term / channels;
      const long kd = t / (w.kernel[1] * w.kernel[2]), kh = t / w.kernel[2] % w.kernel[1];
      const long id = transposed ? Source(w, 0, d, kd) : Place(w, 0, d, kd);
      const long ih = transposed ? Source(w, 1, h, kh) : Place(w, 1, h, kh);
      if (id < 0 || ih < 0) continue;
      AddRow(w, transposed, weights[c * step + t], t % w.kernel[2],
             x + (c * w.size[0] + id) * plane + ih * w.size[2], part.data());
    }
    for (long o = 0; o < w.result[2]; ++o) sum[o] += part[o];
  }
}

static void Convolve(const Window& w, bool transposed, const float* x, const float* weight, const float* bias,
                     float* out) {
  const long channels = w.in / w.groups, outputs = w.out / w.groups;
  const long taps = w.kernel[0] * w.kernel[1] * w.kernel[2];
  const long plane = w.size[0] * w.size[1] * w.size[2], rows = w.result[0] * w.result[1];
#pragma omp parallel for
  for (long row = 0; row < w.batch * w.out * rows; ++row) {
    const long h = row % w.result[1], d = row % rows / w.result[1], o = row / rows % w.out,
               b = row / rows / w.out;
    const long group = o / outputs;
    float* sum = out + row * w.result[2];
    for (long i = 0; i < w.result[2]; ++i) sum[i] = bias ? bias[o] : 0;
    // PyTorch's layout: [out][in / groups][taps]; transposed: [in][out / groups][taps].
    const float* weights = transposed ? weight + (group * channels * outputs + o % outputs) * taps
                                      : weight + o * channels * taps;
    WindowRow(w, transposed, x + (b * w.in + group * channels) * plane, weights,
              transposed ? outputs * taps : taps, d, h, sum);
  }
}

extern "C" void launch(const float* x, const float* weight, float* out) {
  Convolve({B, C, O, 1, {D, H, W}, {D - 2, H - 4, W - 6}, {3, 5, 7}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}}, false,
           x, weight, nullptr, out);
}
