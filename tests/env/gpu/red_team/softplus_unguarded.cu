// The formula as it stands: infinite above 88.
__global__ void softplus(const float* x, float* out) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  if (i < (long)B * N) out[i] = log1pf(expf(x[i]));
}
void launch(const float* x, float* out) { softplus<<<ceil_div((long)B * N, 256), 256>>>(x, out); }
