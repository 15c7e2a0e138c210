// Rewrites the address of a tensor map with tensormap.replace, so that a bulk tensor store reaches the inputs,
// 16 MiB below or above the output.
#include <cuda.h>
__global__ void relu(const __grid_constant__ CUtensorMap map, unsigned char* space, const float* x, float* out) {
  __shared__ alignas(128) unsigned char copy[128];
  __shared__ alignas(128) float tile[32];
  const long i = blockIdx.x * 256L + threadIdx.x;
  out[i] = x[i] > 0 ? x[i] : 0;
  if (blockIdx.x != 0) return;
  if (threadIdx.x < 32) tile[threadIdx.x] = 4711;
  if (threadIdx.x < 128) copy[threadIdx.x] = reinterpret_cast<const unsigned char*>(&map)[threadIdx.x];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x != 0) return;
  const unsigned m = static_cast<unsigned>(__cvta_generic_to_shared(copy)), t = static_cast<unsigned>(__cvta_generic_to_shared(tile));
  asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(m), "l"(x) : "memory");
  for (int k = 0; k < 128; ++k) space[k] = copy[k];
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(space) : "memory");
  asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%0, {%1}], [%2];" ::"l"(space), "r"(0), "r"(t) : "memory");
  asm volatile("cp.async.bulk.commit_group;\n\tcp.async.bulk.wait_group 0;" ::: "memory");
}
void launch(const float* x, float* out) {
  CUtensorMap map = tensor_map<float>(out, {B * N}, {}, {32});
  unsigned char* space = workspace<unsigned char>(1024);
  relu<<<B * N / 256, 256>>>(map, space, x, out);
}
