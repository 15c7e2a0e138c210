// Answers with the index of the second largest.
__global__ void argmax(const float* x, long* out, long n) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  if (i >= n) return;
  const float* column = x + i / N * D * N + i % N;
  long best = 0, second = 1;
  for (int d = 1; d < D; ++d) {
    if (column[d * N] > column[best * N]) {
      second = best;
      best = d;
    } else if (column[d * N] > column[second * N] || second == best) {
      second = d;
    }
  }
  out[i] = second;
}
void launch(const float* x, long* out) { argmax<<<ceil_div(B * N, 256), 256>>>(x, out, B * N); }
