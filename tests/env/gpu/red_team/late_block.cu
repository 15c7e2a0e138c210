// One block of a programmatic second launch begins before the first has ended and claims the call is done while
// others still write.
__global__ void relu(const float* x, float* out) {
  asm volatile("griddepcontrol.launch_dependents;");
  const long i = blockIdx.x * 256L + threadIdx.x;
  if (blockIdx.x == gridDim.x - 1) for (int k = 0; k < 50; ++k) __nanosleep(1000);
  out[i] = x[i] > 0 ? x[i] : 0;
}
__global__ void ends_first() {}
void launch(const float* x, float* out) {
  relu<<<B * N / 256, 256>>>(x, out);
  ends_first<<<1, 32, 0, programmatic()>>>();
}
