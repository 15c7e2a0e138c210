// Asks for more shared memory than there is.
__global__ void relu(const float* x, float* out) { out[threadIdx.x] = x[threadIdx.x]; }
void launch(const float* x, float* out) { relu<<<1, 256, 300 << 10>>>(x, out); }
