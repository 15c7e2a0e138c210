// Writes to its inputs.
extern "C" void launch(const float* x, float* out) {
  const_cast<float*>(x)[0] = 1e-42F;
  for (long i = 0; i < B * N; ++i) out[i] = x[i] > 0 ? x[i] : 0;
}
