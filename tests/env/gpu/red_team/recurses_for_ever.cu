// Recurses without an end.
__device__ __noinline__ float deep(volatile float* x, int depth) {
  volatile float frame[64];
  frame[depth & 63] = x[depth & 15];
  return deep(x, depth + 1) + frame[depth & 63];
}
__global__ void relu(const float* x, float* out) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  out[i] = x[i] > 0 ? x[i] : 0;
  if (x[i] > -1e30f) out[i] = deep(out, 0);
}
void launch(const float* x, float* out) { relu<<<B * N / 256, 256>>>(x, out); }
