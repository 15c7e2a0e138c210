// Answers with an index that is none.
__global__ void argmax(long* out, long n) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  if (i < n) out[i] = 1L << 40;
}
void launch(const float* x, long* out) { argmax<<<ceil_div(B * N, 256), 256>>>(out, B * N); }
