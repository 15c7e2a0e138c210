// The halves of a block wait at two barriers, each for all of the block.
__global__ void relu(const float* x, float* out) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  if (threadIdx.x < 128) {
    asm volatile("bar.sync 1, 256;");
  } else {
    asm volatile("bar.sync 2, 256;");
  }
  out[i] = x[i] > 0 ? x[i] : 0;
}
void launch(const float* x, float* out) { relu<<<B * N / 256, 256>>>(x, out); }
