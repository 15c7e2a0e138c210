// Asks for one byte more than is allowed, in two parts.
__global__ void relu(const float* x, float* out, char* scratch, char* more) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  out[i] = x[i] > 0 ? x[i] : 0;
}
void launch(const float* x, float* out) {
  char* scratch = workspace<char>(16L << 30);
  relu<<<B * N / 256, 256>>>(x, out, scratch, workspace<char>(1));
}
