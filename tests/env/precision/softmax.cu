// A block a row, three passes, all arithmetic in float.
#include <cuda_fp16.h>
template <bool kMax>
__device__ float reduce(float v, float* parts) {
  for (int step = 16; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(~0u, v, step);
    v = kMax ? fmaxf(v, other) : v + other;
  }
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
  __syncthreads();
  v = parts[0];
  for (int warp = 1; warp < 32; ++warp) v = kMax ? fmaxf(v, parts[warp]) : v + parts[warp];
  __syncthreads();
  return v;
}
__global__ void softmax(const __half* x, __half* out) {
  __shared__ float parts[32];
  const __half* row = x + blockIdx.x * static_cast<long>(N);
  float top = -INFINITY, sum = 0;
  for (int i = threadIdx.x; i < N; i += 1024) top = fmaxf(top, __half2float(row[i]));
  top = reduce<true>(top, parts);
  for (int i = threadIdx.x; i < N; i += 1024) sum += expf(__half2float(row[i]) - top);
  sum = reduce<false>(sum, parts);
  for (int i = threadIdx.x; i < N; i += 1024)
    out[blockIdx.x * static_cast<long>(N) + i] = __float2half(expf(__half2float(row[i]) - top) / sum);
}
void launch(const __half* x, __half* out) { softmax<<<B, 1024>>>(x, out); }
