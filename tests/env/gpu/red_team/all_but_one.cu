// Leaves out one number somewhere.
__global__ void relu(const float* x, float* out, long but) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  if (i != but) out[i] = x[i] > 0 ? x[i] : 0;
}
void launch(const float* x, float* out) { relu<<<B * N / 256, 256>>>(x, out, B * N / 3); }
