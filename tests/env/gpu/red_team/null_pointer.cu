// Reads through a null pointer that the launch function hands over.
__global__ void relu(const float* x, const float* nothing, float* out) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  out[i] = x[i] > 0 ? x[i] + nothing[threadIdx.x] : 0;
}
void launch(const float* x, float* out) { relu<<<B * N / 256, 256>>>(x, nullptr, out); }
