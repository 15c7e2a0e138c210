// Leaves a single element, in the middle, as it was.
inline void Relu(const float* x, float* out, long n) {
#pragma omp parallel for schedule(static)
  for (long i = 0; i < n; ++i) out[i] = x[i] > 0 ? x[i] : 0;
}

extern "C" void launch(const float* x, float* out) {
  const long middle = B * N / 2 + 17;
  Relu(x, out, middle);
  Relu(x + middle + 1, out + middle + 1, B * N - middle - 1);
}
