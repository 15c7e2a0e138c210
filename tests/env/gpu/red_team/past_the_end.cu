// Writes one number past the end of the output.
__global__ void relu(const float* x, float* out, long n) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  if (i < n) out[i] = x[i] > 0 ? x[i] : 0;
  if (i == 0) out[n] = 1;
}
void launch(const float* x, float* out) { relu<<<B * N / 256, 256>>>(x, out, B * N); }
