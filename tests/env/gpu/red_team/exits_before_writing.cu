// Exits in the middle.
__global__ void relu(const float* x, float* out) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  const float v = x[i];
  if (v > 1) asm volatile("exit;");
  out[i] = v > 0 ? v : 0;
}
void launch(const float* x, float* out) { relu<<<B * N / 256, 256>>>(x, out); }
