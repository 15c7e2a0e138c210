// Writes into the shared memory of a block of its cluster that does not exist.
__global__ void relu(const float* x, float* out) {
  __shared__ float value;
  const long i = blockIdx.x * 256L + threadIdx.x;
  unsigned mine = static_cast<unsigned>(__cvta_generic_to_shared(&value)), theirs;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(theirs) : "r"(mine), "r"(9));
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(theirs), "f"(1.0f) : "memory");
  out[i] = x[i] > 0 ? x[i] : 0;
}
void launch(const float* x, float* out) { relu<<<B * N / 256, 256, 0, cluster(2)>>>(x, out); }
