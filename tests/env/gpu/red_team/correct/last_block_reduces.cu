// The block that counts itself last adds up; the counters are set back for the next call.
constexpr int kParts = 8;
__device__ unsigned arrived[4096];
__global__ void sum(const float* x, float* partial, float* out) {
  __shared__ bool last;
  const int column = blockIdx.x * 128 + threadIdx.x, b = blockIdx.y, part = blockIdx.z;
  float s = 0;
  if (column < N) {
    for (int d = part; d < D; d += kParts) s += x[(static_cast<long>(b) * D + d) * N + column];
    partial[(b * kParts + part) * N + column] = s;
  }
  __threadfence();
  __syncthreads();
  unsigned* counter = arrived + b * gridDim.x + blockIdx.x;
  if (threadIdx.x == 0) {
    last = atomicAdd(counter, 1) == kParts - 1;
    if (last) *counter = 0;
  }
  __syncthreads();
  if (!last || column >= N) return;
  __threadfence();
  s = 0;
  for (int p = 0; p < kParts; ++p) s += partial[(b * kParts + p) * N + column];
  out[b * N + column] = s;
}
void launch(const float* x, float* out) {
  sum<<<dim3(ceil_div(N, 128), B, kParts), 128>>>(x, workspace<float>(B * kParts * N), out);
}
