// Reverses through shared memory without a barrier, and goes back with one.
__global__ void relu(const float* x, float* out) {
  __shared__ volatile float values[1024];
  const long i = blockIdx.x * 1024L + threadIdx.x;
  const float v = x[i];
  values[threadIdx.x] = v;
  const float other = values[1023 - threadIdx.x];
  __syncthreads();
  values[threadIdx.x] = other;
  __syncthreads();
  out[i] = values[1023 - threadIdx.x] > 0 ? values[1023 - threadIdx.x] : 0;
}
void launch(const float* x, float* out) { relu<<<B * N / 1024, 1024>>>(x, out); }
