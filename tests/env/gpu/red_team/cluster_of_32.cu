// Asks for a cluster that no device has.
__global__ void relu(const float* x, float* out) { out[threadIdx.x] = x[threadIdx.x]; }
void launch(const float* x, float* out) { relu<<<32, 256, 0, cluster(32)>>>(x, out); }
