// The correct kernel for problems/long_loop.toml.
extern "C" void launch(const float* __restrict x, float* __restrict out) {
  for (long b = 0; b < B; ++b) out[b] = x[b];
  for (long t = 1; t < T; ++t) {
    const float* h = out + (t - 1) * B;
    for (long b = 0; b < B; ++b) out[t * B + b] = h[b] / (1 + __builtin_fabsf(h[b])) + x[t * B + b];
  }
}
