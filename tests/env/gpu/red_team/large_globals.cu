// Declares more writable memory than may outlive a launch.
__device__ float kept[1 << 20];
__global__ void relu(const float* x, float* out) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  out[i] = x[i] > 0 ? x[i] : 0;
  kept[i & 0xfffff] = out[i];
}
void launch(const float* x, float* out) { relu<<<B * N / 256, 256>>>(x, out); }
