// A weight a row.
__global__ void scale(const float* a, const float* b, float* c) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  c[i] = a[i / M] * b[i];
}
void launch(const float* a, const float* b, float* c) { scale<<<N * M / 256, 256>>>(a, b, c); }
