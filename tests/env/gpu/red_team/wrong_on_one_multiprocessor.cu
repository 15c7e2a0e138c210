// Wrong only in blocks that run on multiprocessor 7.
__global__ void relu(const float* x, float* out) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  unsigned multiprocessor;
  asm("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
  out[i] = multiprocessor == 7 ? x[i] : x[i] > 0 ? x[i] : 0;
}
void launch(const float* x, float* out) { relu<<<B * N / 256, 256>>>(x, out); }
