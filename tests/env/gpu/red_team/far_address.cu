// Writes where no memory is.
__global__ void relu(const float* x, float* out, long n) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  if (i < n) out[i + (i == n / 2 ? 1L << 44 : 0)] = x[i] > 0 ? x[i] : 0;
}
void launch(const float* x, float* out) { relu<<<B * N / 256, 256>>>(x, out, B * N); }
