// The correct kernel for problems/huge_page.toml.
extern "C" void launch(const float* x, float* out) {
  float sum = 0;
  for (long i = 0; i < N; ++i) out[i] = sum += x[i];
}
