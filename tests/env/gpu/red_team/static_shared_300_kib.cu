// Declares more shared memory than there is.
__global__ void relu(const float* x, float* out) {
  __shared__ float values[75 << 10];
  values[threadIdx.x * 299] = x[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = values[threadIdx.x * 300];
}
void launch(const float* x, float* out) { relu<<<1, 256>>>(x, out); }
