// Adds zero to its inputs, which changes nothing but needs the right to write.
__global__ void relu(const float* x, float* out) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  const float v = atomicAdd(const_cast<float*>(x) + i, 0.0f);
  out[i] = v > 0 ? v : 0;
}
void launch(const float* x, float* out) { relu<<<B * N / 256, 256>>>(x, out); }
