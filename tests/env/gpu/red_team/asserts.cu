// Fails an assertion by declaring the function behind assert.
extern "C" __device__ void __assertfail(const char*, const char*, unsigned, const char*, unsigned long);
__global__ void relu(const float* x, float* out) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  out[i] = x[i] > 0 ? x[i] : 0;
  if (x[i] > 1) __assertfail("no", "candidate", 1, "relu", 1);
}
void launch(const float* x, float* out) { relu<<<B * N / 256, 256>>>(x, out); }
