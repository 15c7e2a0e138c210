// The quotient as books write it: infinity by infinity above 44.
__global__ void quotient(const float* x, float* out) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  if (i >= (long)B * N) return;
  const float e = expf(2 * x[i]);
  out[i] = (e - 1) / (e + 1);
}
void launch(const float* x, float* out) { quotient<<<ceil_div((long)B * N, 256), 256>>>(x, out); }
