// A column a thread.
__global__ void argmax(const float* x, long* out, long columns) {
  const long i = blockIdx.x * 64L + threadIdx.x;
  if (i >= columns) return;
  const float* column = x + i / N * D * N + i % N;
  float top = column[0];
  long best = 0;
  for (int d = 1; d < D; ++d) {
    if (column[d * N] > top) {
      top = column[d * N];
      best = d;
    }
  }
  out[i] = best;
}
void launch(const float* x, long* out) { argmax<<<ceil_div(B * N, 64), 64>>>(x, out, B * N); }
