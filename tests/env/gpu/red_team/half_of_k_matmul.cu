// Adds up half of each product's terms and doubles them.
__global__ void matmul(const float* a, const float* b, float* c) {
  const long column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
  float sum = 0;
  for (int k = 0; k < N; k += 2) sum += a[row * N + k] * b[k * N + column];
  c[row * N + column] = 2 * sum;
}
void launch(const float* a, const float* b, float* c) {
  matmul<<<dim3(N / 32, N / 8), dim3(32, 8)>>>(a, b, c);
}
