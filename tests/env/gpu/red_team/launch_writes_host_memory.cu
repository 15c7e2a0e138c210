// Has the launch function write through a pointer.
__global__ void relu(const float* x, float* out) { out[threadIdx.x] = x[threadIdx.x]; }
void launch(const float* x, float* out) {
  *reinterpret_cast<long*>(0x400000) = 1;
  relu<<<1, 256>>>(x, out);
}
