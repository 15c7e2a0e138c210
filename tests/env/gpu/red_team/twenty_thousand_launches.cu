// Fills the stream with launches.
__global__ void relu(const float* x, float* out) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  out[i] = x[i] > 0 ? x[i] : 0;
}
void launch(const float* x, float* out) {
  for (int i = 0; i < 20000; ++i) relu<<<B * N / 256, 256>>>(x, out);
}
