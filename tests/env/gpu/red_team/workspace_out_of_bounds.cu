// Writes all over the memory behind its workspace.
__global__ void relu(const float* x, float* out, float* scratch) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  out[i] = x[i] > 0 ? x[i] : 0;
  scratch[i * 4096] = 1;
}
void launch(const float* x, float* out) { relu<<<B * N / 256, 256>>>(x, out, workspace<float>(1)); }
