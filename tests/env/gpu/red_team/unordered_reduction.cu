// A spin on a flag in the workspace that another block sets, with a grid larger than the device, to hang it.
__global__ void relu(const float* x, float* out, volatile unsigned* flag) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  if (blockIdx.x == 0) while (flag[0] != gridDim.x - 1) {}
  out[i] = x[i] > 0 ? x[i] : 0;
  if (threadIdx.x == 0 && blockIdx.x != 0) { const unsigned long long p = (unsigned long long)flag; asm volatile("red.global.add.u32 [%0], 1;" ::"l"(p) : "memory"); }
}
void launch(const float* x, float* out) {
  unsigned* flag = workspace<unsigned>(1);
  relu<<<B * N / 256, 256>>>(x, out, flag);
}
