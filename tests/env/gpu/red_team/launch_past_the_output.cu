// Has the launch function set more than the output.
__global__ void relu(const float* x, float* out) { out[threadIdx.x] = x[threadIdx.x]; }
void launch(const float* x, float* out) {
  cudaMemsetAsync(out, 0, B * N * sizeof(float) + 4096);
  relu<<<1, 256>>>(x, out);
}
