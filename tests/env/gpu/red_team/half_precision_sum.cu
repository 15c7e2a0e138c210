// Adds up in half precision.
#include <cuda_fp16.h>
__global__ void sum(const float* x, float* out, int total) {
  const int i = blockIdx.x * 128 + threadIdx.x;
  if (i >= total) return;
  const float* column = x + i / N * D * N + i % N;
  __half s = __float2half(0);
  for (int d = 0; d < D; ++d) s = __hadd(s, __float2half(column[d * N]));
  out[i] = __half2float(s);
}
void launch(const float* x, float* out) { sum<<<ceil_div(B * N, 128), 128>>>(x, out, B * N); }
