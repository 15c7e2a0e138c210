// Reads four numbers at an address that is no multiple of sixteen.
__global__ void relu(const float* x, float* out) {
  const long i = blockIdx.x * 256L + threadIdx.x;
  if (i == 5) out[0] = reinterpret_cast<const float4*>(x + 1)->w;
  out[i] = x[i] > 0 ? x[i] : 0;
}
void launch(const float* x, float* out) { relu<<<B * N / 256, 256>>>(x, out); }
