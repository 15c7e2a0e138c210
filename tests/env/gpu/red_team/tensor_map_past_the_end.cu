// A tensor map whose sizes wrap around 2^64, beyond the output.
#include <cuda.h>
__global__ void relu(const __grid_constant__ CUtensorMap map, const float* x, float* out) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  out[i] = x[i] > 0 ? x[i] : 0;
}
void launch(const float* x, float* out) {
  CUtensorMap map = tensor_map<float>(out, {N, 4611686018427387904L / N * 4}, {N * 4}, {32, 8});
  relu<<<B * N / 256, 256>>>(map, x, out);
}
