// Calls a function that is nowhere, in the hope that something is linked in.
extern "C" __device__ float evil(float v);
__global__ void relu(const float* x, float* out) { out[threadIdx.x] = evil(x[threadIdx.x]); }
void launch(const float* x, float* out) { relu<<<1, 256>>>(x, out); }
