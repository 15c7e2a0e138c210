// Blocks in clusters of four that read each other's shared memory.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void relu(const float* x, float* out) {
  __shared__ float values[256];
  const cg::cluster_group cluster = cg::this_cluster();
  const long first = (blockIdx.x / 4) * 1024L;
  const unsigned rank = cluster.block_rank(), other = (rank + 1) % 4;
  values[threadIdx.x] = x[first + rank * 256 + threadIdx.x];
  cluster.sync();
  const float v = cluster.map_shared_rank(values, other)[threadIdx.x];
  out[first + other * 256 + threadIdx.x] = v > 0 ? v : 0;
  cluster.sync();
}
void launch(const float* x, float* out) { relu<<<B * N / 256, 256, 0, cluster(4)>>>(x, out); }
