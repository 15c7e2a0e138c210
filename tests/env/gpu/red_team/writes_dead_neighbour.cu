// Writes into the distributed shared memory of a block of its cluster that has ended, perhaps already another
// kernel's.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void relu(const float* x, float* out) {
  __shared__ float values[8192];
  const cg::cluster_group cluster = cg::this_cluster();
  const unsigned rank = cluster.block_rank();
  const long i = blockIdx.x * 256L + threadIdx.x;
  out[i] = x[i] > 0 ? x[i] : 0;
  values[threadIdx.x] = out[i];
  cluster.sync();
  if (rank != 0) return;
  for (int wait = 0; wait < 20; ++wait) __nanosleep(1000);
  for (int k = threadIdx.x; k < 8192; k += 256) cluster.map_shared_rank(values, 1)[k] = 4711.0f;
}
void launch(const float* x, float* out) { relu<<<B * N / 256, 256, 0, cluster(4)>>>(x, out); }
