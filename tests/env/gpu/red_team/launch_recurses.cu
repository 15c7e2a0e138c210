// Lets a function of the launch function call itself.
__global__ void relu(const float* x, float* out) { out[threadIdx.x] = x[threadIdx.x]; }
void again(const float* x, float* out, int depth) {
  again(x, out, depth + 1);
  relu<<<1, 256>>>(x, out);
}
void launch(const float* x, float* out) { again(x, out, 0); }
