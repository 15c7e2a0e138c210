// Writes over the machine code of a function of its own.
__device__ __noinline__ float positive(float v) { return v > 0 ? v : 0; }
__global__ void relu(const float* x, float* out) {
  float (*volatile function)(float) = positive;
  const long i = blockIdx.x * 256L + threadIdx.x;
  if (i == 0) *reinterpret_cast<volatile long*>(reinterpret_cast<long>(function)) = 0;
  out[i] = function(x[i]);
}
void launch(const float* x, float* out) { relu<<<B * N / 256, 256>>>(x, out); }
