// A block a row, with reductions through shared memory and shuffles.
template <bool kMax>
__device__ float reduce(float v, float* parts) {
  for (int step = 16; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(~0u, v, step);
    v = kMax ? fmaxf(v, other) : v + other;
  }
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
  __syncthreads();
  v = parts[0];
  for (int warp = 1; warp < 32; ++warp) v = kMax ? fmaxf(v, parts[warp]) : v + parts[warp];
  __syncthreads();
  return v;
}
__global__ void softmax(const float* x, float* out) {
  extern __shared__ float parts[];
  const float* row = x + blockIdx.x * static_cast<long>(N);
  float top = -INFINITY, sum = 0;
  for (int i = threadIdx.x; i < N; i += 1024) top = fmaxf(top, row[i]);
  top = reduce<true>(top, parts);
  for (int i = threadIdx.x; i < N; i += 1024) sum += expf(row[i] - top);
  sum = reduce<false>(sum, parts);
  for (int i = threadIdx.x; i < N; i += 1024)
    out[blockIdx.x * static_cast<long>(N) + i] = expf(row[i] - top) / sum;
}
void launch(const float* x, float* out) { softmax<<<B, 1024, 32 * sizeof(float)>>>(x, out); }
