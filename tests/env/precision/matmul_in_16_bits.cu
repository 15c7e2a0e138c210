// Incorrect: the sums themselves are kept in 16 bits, and lose a digit with every few terms.
#include <cuda_fp16.h>
__global__ void matmul(const __half* a, const __half* b, __half* c) {
  const int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
  __half sum = __float2half(0.0f);
  for (int k = 0; k < N; ++k) {
    const float product = __half2float(a[row * (long)N + k]) * __half2float(b[k * (long)N + column]);
    sum = __float2half(__half2float(sum) + product);
  }
  c[row * (long)N + column] = sum;
}
void launch(const __half* a, const __half* b, __half* c) { matmul<<<dim3(N / 32, N / 32), dim3(32, 32)>>>(a, b, c); }
