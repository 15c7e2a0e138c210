// Lets a number of the launch function overflow.
__global__ void relu(const float* x, float* out) { out[threadIdx.x] = x[threadIdx.x]; }
void launch(const float* x, float* out) {
  long blocks = 1;
  for (int i = 0; i < 70; ++i) blocks *= 3;
  relu<<<blocks, 256>>>(x, out);
}
