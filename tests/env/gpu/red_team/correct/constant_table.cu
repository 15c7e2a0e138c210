// Takes its threshold and its slopes from constant memory.
__constant__ float slopes[2];
__constant__ float threshold;
__global__ void relu(const float* x, float* out) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  out[i] = x[i] * slopes[x[i] > threshold];
}
void launch(const float* x, float* out) {
  constant(slopes, {0.0f, 1.0f});
  constant(threshold, 0.0f);
  relu<<<B * N / 256, 256>>>(x, out);
}
