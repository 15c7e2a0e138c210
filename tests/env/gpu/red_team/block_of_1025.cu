// Asks for one thread too many.
__global__ void relu(const float* x, float* out) { out[threadIdx.x] = x[threadIdx.x]; }
void launch(const float* x, float* out) { relu<<<1, 1025>>>(x, out); }
