// Four warps, each 32 by 32 of a tile of 64 by 64, on tensor cores with float accumulators.
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;
__global__ void __launch_bounds__(128) matmul(const __half* a, const __half* b, __half* c) {
  __shared__ float tile[4][32 * 32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = blockIdx.y * 64 + warp / 2 * 32, column = blockIdx.x * 64 + warp % 2 * 32;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[2][2];
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j) wmma::fill_fragment(sums[i][j], 0.0f);
  for (int k = 0; k < N; k += 16) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left[2];
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right[2];
    for (int i = 0; i < 2; ++i) wmma::load_matrix_sync(left[i], a + (row + 16 * i) * (long)N + k, N);
    for (int j = 0; j < 2; ++j) wmma::load_matrix_sync(right[j], b + k * (long)N + column + 16 * j, N);
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 2; ++j) wmma::mma_sync(sums[i][j], left[i], right[j], sums[i][j]);
  }
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j)
      wmma::store_matrix_sync(tile[warp] + i * 16 * 32 + j * 16, sums[i][j], 32, wmma::mem_row_major);
  __syncwarp();
  for (int r = 0; r < 32; ++r) c[(row + r) * (long)N + column + lane] = __float2half(tile[warp][r * 32 + lane]);
}
void launch(const __half* a, const __half* b, __half* c) { matmul<<<dim3(N / 64, N / 64), 128>>>(a, b, c); }
