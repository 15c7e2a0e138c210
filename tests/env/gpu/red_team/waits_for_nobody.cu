// Spins on a flag that no block sets.
__global__ void relu(const float* x, float* out, volatile int* flag) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  if (threadIdx.x == 0) {
    while (*flag == 0) __nanosleep(100);
  }
  __syncthreads();
  out[i] = x[i] > 0 ? x[i] : 0;
}
void launch(const float* x, float* out) {
  relu<<<B * N / 256, 256>>>(x, out, workspace<int>(1, zeroed));
}
