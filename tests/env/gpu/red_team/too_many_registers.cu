// Asks for blocks of 1024 threads whose registers do not fit.
__global__ void relu(const volatile float* x, float* out) {
  const long i = blockIdx.x * 1024L + threadIdx.x;
  float v[96];
#pragma unroll
  for (int k = 0; k < 96; ++k) v[k] = x[(i + k * 4099L) % (B * N)];
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int k = 95; k >= 0; --k) sum = sum * v[k] + v[k];
  out[i] = sum == 1e-37f ? sum : x[i] > 0 ? x[i] : 0;
}
void launch(const float* x, float* out) { relu<<<B * N / 1024, 1024>>>(x, out); }
