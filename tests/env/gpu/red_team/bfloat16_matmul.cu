// Multiplies on tensor cores with inputs rounded to bfloat16.
#include <cuda_bf16.h>
#include <mma.h>
using namespace nvcuda;
__global__ void matmul(const float* a, const float* b, float* c) {
  __shared__ __nv_bfloat16 left[256], right[256];
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  for (int k = 0; k < N; k += 16) {
    for (int e = threadIdx.x; e < 256; e += 32) {
      left[e] = __float2bfloat16(a[(blockIdx.y * 16 + e / 16) * N + k + e % 16]);
      right[e] = __float2bfloat16(b[(k + e / 16) * N + blockIdx.x * 16 + e % 16]);
    }
    __syncwarp();
    wmma::load_matrix_sync(fa, left, 16);
    wmma::load_matrix_sync(fb, right, 16);
    wmma::mma_sync(sum, fa, fb, sum);
    __syncwarp();
  }
  wmma::store_matrix_sync(c + blockIdx.y * 16 * N + blockIdx.x * 16, sum, N, wmma::mem_row_major);
}
void launch(const float* a, const float* b, float* c) { matmul<<<dim3(N / 16, N / 16), 32>>>(a, b, c); }
