// Arrives at the cluster barrier and never waits, and exits with armed mbarriers in the neighbour's shared
// memory.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void relu(const float* x, float* out) {
  __shared__ alignas(8) unsigned long long bar;
  const cg::cluster_group cluster = cg::this_cluster();
  const long i = blockIdx.x * 256L + threadIdx.x;
  out[i] = x[i] > 0 ? x[i] : 0;
  if (threadIdx.x == 0) {
    const unsigned b = static_cast<unsigned>(__cvta_generic_to_shared(&bar));
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 100;" ::"r"(b) : "memory");
    unsigned other;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(b), "r"((cluster.block_rank() + 1) % 4));
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(other) : "memory");
  }
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
void launch(const float* x, float* out) { relu<<<B * N / 256, 256, 0, cluster(4)>>>(x, out); }
