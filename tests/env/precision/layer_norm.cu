// Sums of each chunk of a row, then mean and variance from them (both in float, around the chunk's own mean),
// then the values.
#include <cuda_fp16.h>
constexpr long kRow = C * H * W, kChunk = 4096, kChunks = kRow / kChunk;
__device__ float add_up(float v, float* parts) {
  for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(~0u, v, step);
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
  __syncthreads();
  v = parts[0];
  for (int warp = 1; warp < 8; ++warp) v += parts[warp];
  return v;
}
__global__ void moments(const __half* x, float2* chunks) {
  __shared__ float parts[8];
  const __half* from = x + blockIdx.x * kChunk;
  float sum = 0, squares = 0;
  for (int i = threadIdx.x; i < kChunk; i += 256) sum += __half2float(from[i]);
  const float mean = add_up(sum, parts) / kChunk;
  for (int i = threadIdx.x; i < kChunk; i += 256) {
    const float d = __half2float(from[i]) - mean;
    squares += d * d;
  }
  squares = add_up(squares, parts);
  if (threadIdx.x == 0) chunks[blockIdx.x] = make_float2(mean, squares);
}
__global__ void finish(const float2* chunks, float2* rows) {
  __shared__ float parts[8];
  const float2* from = chunks + blockIdx.x * kChunks;
  float sum = 0, squares = 0;
  for (int i = threadIdx.x; i < kChunks; i += 256) sum += from[i].x;
  const float mean = add_up(sum, parts) / kChunks;
  for (int i = threadIdx.x; i < kChunks; i += 256) {
    const float d = from[i].x - mean;
    squares += from[i].y + kChunk * d * d;
  }
  squares = add_up(squares, parts);
  if (threadIdx.x == 0) rows[blockIdx.x] = make_float2(mean, rsqrtf(squares / kRow + 1e-5f));
}
__global__ void apply(const __half* x, const __half* weight, const __half* bias, __half* out, const float2* rows) {
  const long i = blockIdx.x * 256l + threadIdx.x;
  const float2 row = rows[i / kRow];
  const float v = (__half2float(x[i]) - row.x) * row.y;
  out[i] = __float2half(v * __half2float(weight[i % kRow]) + __half2float(bias[i % kRow]));
}
void launch(const __half* x, const __half* weight, const __half* bias, __half* out) {
  float2* chunks = workspace<float2>(B * C * H * W / 4096);
  float2* rows = workspace<float2>(B);
  moments<<<B * C * H * W / 4096, 256>>>(x, chunks);
  finish<<<B, 256>>>(chunks, rows);
  apply<<<B * C * H * W / 256, 256>>>(x, weight, bias, out, rows);
}
