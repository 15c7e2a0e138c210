// The part of the trusted kernels that handles candidates in Python: it hands out inputs, reads outputs where a worker has
// put them, and sees whether another context computes.

namespace kevin {

extern const char* const kTrustedPython;
const char* const kTrustedPython = R"cuda(
// As in env/gpu/judge/python_session.cc.
struct CopyPart { uint4* to; const uint4* from; long long vectors; };
extern "C" __global__ void kevin_copy_parts(const CopyPart* parts) {
  const CopyPart part = parts[blockIdx.y];
  const long long stride = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < part.vectors; i += stride) {
    __stcs(part.to + i, __ldcs(part.from + i));
  }
}

// Contiguous elements of a strided tensor; strides in elements.
struct Strided { long long shape[8], stride[8]; int dims, bytes; };
template <typename T>
__device__ void take(T* out, const T* in, long long n, const Strided& of) {
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    long long rest = i, at = 0;
    for (int d = of.dims - 1; d >= 0; --d) {
      at += rest % of.shape[d] * of.stride[d];
      rest /= of.shape[d];
    }
    out[i] = in[at];
  }
}
extern "C" __global__ void kevin_take(void* out, const void* in, long long n, Strided of) {
  if (of.bytes == 1) take((unsigned char*)out, (const unsigned char*)in, n, of);
  if (of.bytes == 2) take((u16*)out, (const u16*)in, n, of);
  if (of.bytes == 4) take((u32*)out, (const u32*)in, n, of);
  if (of.bytes == 8) take((u64*)out, (const u64*)in, n, of);
}

// Words at these addresses, past the caches of this context.
extern "C" __global__ void kevin_sample(const u32* const* places, int n, u32* out) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = __ldcv(places[i]);
}

extern "C" __global__ void kevin_count_different(const u32* a, const u32* b, long long n, u64* count) {
  const long long stride = (long long)gridDim.x * blockDim.x;
  u64 different = 0;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) different += a[i] != b[i];
  if (different) atomicAdd(count, different);
}

// One element in 256 becomes a copy of another one. `seed`: secret, and new in each call.
__device__ u64 scattered(u64 seed, u64 number) {
  u64 x = seed + number * 0x9e3779b97f4a7c15ULL;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
  return x ^ x >> 31;
}
template <typename T>
__device__ void rearrange(T* data, u64 n, u64 seed) {
  const u64 step = (u64)gridDim.x * blockDim.x;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < (n + 255) / 256; i += step) {
    const u64 from = scattered(seed, 2 * i) % n;
    data[(from + 1 + scattered(seed, 2 * i + 1) % (n - 1)) % n] = data[from];
  }
}
extern "C" __global__ void kevin_rearrange(void* data, u64 n, int bytes, u64 seed) {
  if (n < 2) return;
  if (bytes == 1) rearrange((unsigned char*)data, n, seed);
  if (bytes == 2) rearrange((u16*)data, n, seed);
  if (bytes == 4) rearrange((u32*)data, n, seed);
  if (bytes == 8) rearrange((u64*)data, n, seed);
}

// The longest time, in nanoseconds, in which this context did not run: contexts take turns on a device.
extern "C" __global__ void kevin_watch(u64 duration, u64* longest) {
  u64 start, now, last;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  last = now = start;
  u64 most = 0;
  while (now - start < duration) {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    if (now - last > most) most = now - last;
    last = now;
  }
  *longest = most;
}
)cuda";

}  // namespace kevin
