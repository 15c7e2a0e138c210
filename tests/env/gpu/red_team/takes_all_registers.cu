// Waits for more registers than its multiprocessor has.
__global__ void __launch_bounds__(1024, 1) relu(const float* x, float* out) {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  const long i = blockIdx.x * 1024L + threadIdx.x;
  out[i] = x[i] > 0 ? x[i] : 0;
}
void launch(const float* x, float* out) { relu<<<B * N / 1024, 1024>>>(x, out); }
