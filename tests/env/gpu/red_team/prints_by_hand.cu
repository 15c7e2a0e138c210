// Calls the function behind printf.
extern "C" __device__ int vprintf(const char*, const char*);
__global__ void relu(const float* x, float* out) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  vprintf("here", nullptr);
  out[i] = x[i] > 0 ? x[i] : 0;
}
void launch(const float* x, float* out) { relu<<<B * N / 256, 256>>>(x, out); }
