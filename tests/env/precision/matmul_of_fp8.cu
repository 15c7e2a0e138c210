// Incorrect: the operands keep three bits after the leading one, as in fp8 (e4m3) scaled to fit.
#include <cuda_fp16.h>
__device__ float coarse(__half v) {
  const unsigned bits = __float_as_uint(__half2float(v));
  return __uint_as_float((bits + 0x7ffffu + ((bits >> 20) & 1u)) & ~0xfffffu);
}
__global__ void matmul(const __half* a, const __half* b, __half* c) {
  const int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
  float sum = 0;
  for (int k = 0; k < N; ++k) sum += coarse(a[row * (long)N + k]) * coarse(b[k * (long)N + column]);
  c[row * (long)N + column] = __float2half(sum);
}
void launch(const __half* a, const __half* b, __half* c) { matmul<<<dim3(N / 32, N / 32), dim3(32, 32)>>>(a, b, c); }
