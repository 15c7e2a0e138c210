// A tensor map with a huge stride, which overlaps other memory.
#include <cuda.h>
__global__ void relu(const __grid_constant__ CUtensorMap map, const float* x, float* out) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  out[i] = x[i] > 0 ? x[i] : 0;
}
void launch(const float* x, float* out) {
  CUtensorMap map = tensor_map<float>(out, {32, 8}, {1099511627760L}, {32, 8});
  relu<<<B * N / 256, 256>>>(map, x, out);
}
