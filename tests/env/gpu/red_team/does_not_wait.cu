// Its second kernel begins early and does not wait for what the first one writes.
__global__ void first(const float* x, float* middle) {
  asm volatile("griddepcontrol.launch_dependents;");
  for (int k = 0; k < 100; ++k) __nanosleep(1000);
  for (long i = blockIdx.x * 256L + threadIdx.x; i < B * N; i += gridDim.x * 256L)
    middle[i] = x[i] > 0 ? x[i] : 0;
}
__global__ void second(const float* middle, float* out) {
  for (long i = blockIdx.x * 256L + threadIdx.x; i < B * N; i += gridDim.x * 256L) out[i] = middle[i];
}
void launch(const float* x, float* out) {
  float* middle = workspace<float>(B * N);
  first<<<64, 256>>>(x, middle);
  second<<<64, 256, 0, programmatic()>>>(middle, out);
}
