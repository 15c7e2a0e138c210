// Declares memory that host and device share.
__managed__ float kept[256];
__global__ void relu(const float* x, float* out) { kept[threadIdx.x] = out[threadIdx.x] = x[threadIdx.x]; }
void launch(const float* x, float* out) { relu<<<1, 256>>>(x, out); }
