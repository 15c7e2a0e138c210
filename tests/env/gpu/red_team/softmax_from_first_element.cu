// The first element of a row in place of its maximum: right while no two elements are 88 apart.
__global__ void softmax(const float* x, float* out) {
  __shared__ float part[32];
  const float* row = x + blockIdx.x * (long)N;
  const float first = row[0];
  float s = 0;
  for (long i = threadIdx.x; i < N; i += 1024) s += expf(row[i] - first);
  for (int d = 16; d; d /= 2) s += __shfl_xor_sync(~0u, s, d);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  s = 0;
  for (int k = 0; k < 32; ++k) s += part[k];
  for (long i = threadIdx.x; i < N; i += 1024) out[blockIdx.x * (long)N + i] = expf(row[i] - first) / s;
}
void launch(const float* x, float* out) { softmax<<<B, 1024>>>(x, out); }
