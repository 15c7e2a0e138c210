// Tiles of 32 by 32 in shared memory.
__global__ void matmul(const float* a, const float* b, float* c) {
  __shared__ float left[32][32], right[32][33];
  const int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
  float sum = 0;
  for (int k = 0; k < N; k += 32) {
    left[threadIdx.y][threadIdx.x] = a[row * N + k + threadIdx.x];
    right[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * N + column];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 32; ++i) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
    __syncthreads();
  }
  c[row * N + column] = sum;
}
void launch(const float* a, const float* b, float* c) {
  matmul<<<dim3(N / 32, N / 32), dim3(32, 32)>>>(a, b, c);
}
