// Writes past the end of its shared memory.
__global__ void relu(const float* x, float* out, int far) {
  __shared__ float values[256];
  const long i = blockIdx.x * 256L + threadIdx.x;
  values[threadIdx.x + far] = x[i];
  __syncthreads();
  const float v = values[threadIdx.x + far];
  out[i] = v > 0 ? v : 0;
}
void launch(const float* x, float* out) { relu<<<B * N / 256, 256>>>(x, out, 1 << 20); }
