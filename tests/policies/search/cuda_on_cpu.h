#pragma once
// An emulation of the CUDA that generated kernels use, for tests without a GPU. It is included before the
// result of ToCpp (kernel_library.h). The threads of a block, and of all blocks of a cluster, are fibers that
// run in turn; blocks run one after another. Asynchronous copies happen as late as they may. Shared memory
// and workspaces start as NaN; a misaligned load returns NaN and a misaligned store is dropped.

#include <setjmp.h>
#include <stdint.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <type_traits>
#include <vector>

#define __global__ static
#define __device__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define threadIdx (emulated::self->thread)
#define blockIdx (emulated::self->block->index)
#define gridDim (emulated::grid)

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(long ax = 1, long ay = 1, long az = 1) : x(unsigned(ax)), y(unsigned(ay)), z(unsigned(az)) {}
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

struct __half {
  _Float16 bits{};
  __half() = default;
  explicit __half(float x) : bits(static_cast<_Float16>(x)) {}
  operator float() const { return static_cast<float>(bits); }
};
struct __nv_bfloat16 {
  uint16_t bits{};
  __nv_bfloat16() = default;
  explicit __nv_bfloat16(float x) {
    const auto wide = std::bit_cast<uint32_t>(x);
    bits = static_cast<uint16_t>((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
  }
  operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};
inline float __half2float(__half x) { return x; }
inline __half __float2half(float x) { return __half(x); }
inline float __bfloat162float(__nv_bfloat16 x) { return x; }
inline __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }

#include "cuda_threads_on_cpu.h"

namespace emulated {

template <class T>
bool IsAligned(const T* at) {
  return reinterpret_cast<uintptr_t>(at) % sizeof(T) == 0;
}

template <class T>
T LoadAligned(const T* from) {
  T value;
  if (IsAligned(from)) {
    std::memcpy(&value, from, sizeof value);
  } else {
    std::memset(&value, 0xff, sizeof value);
  }
  return value;
}

// Every lane gives `value` and gets the one of lane `from`, or its own back when there is no such lane.
template <class T>
T Exchange(T value, int from) {
  Warp& warp = *self->warp;
  std::memcpy(&warp.slots[self->thread.x % 32], &value, sizeof value);
  Wait(warp.barrier);
  if (from >= 0 && from < 32) std::memcpy(&value, &warp.slots[from], sizeof value);
  Wait(warp.barrier);
  return value;
}

}  // namespace emulated

inline void __syncthreads() { emulated::Wait(emulated::self->block->barrier); }
inline void __cluster_barrier_arrive() {}
inline void __cluster_barrier_wait() { emulated::Wait(emulated::self->block->cluster->barrier); }
inline void* __cluster_map_shared_rank(const void* at, unsigned rank) {
  const auto* base = reinterpret_cast<const char*>(emulated::self->block->dynamic_shared.data());
  auto* other = reinterpret_cast<char*>(emulated::self->block->cluster->blocks[rank].dynamic_shared.data());
  return other + (static_cast<const char*>(at) - base);
}

template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return emulated::Exchange(value, int(threadIdx.x % 32) ^ mask);
}
template <class T>
T __shfl_up_sync(unsigned, T value, int by) {
  return emulated::Exchange(value, int(threadIdx.x % 32) - by);
}
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  return emulated::Exchange(value, lane);
}

template <class T>
T __ldg(const T* from) {
  return emulated::LoadAligned(from);
}
template <class T>
T __ldcs(const T* from) {
  return emulated::LoadAligned(from);
}
template <class T>
void __stcs(T* to, const T& value) {
  if (emulated::IsAligned(to)) *to = value;
}

// In place of the candidate's own functions of these names.
template <int kBytes>
void CopyAsync(void* to, const void* from, bool is_there) {
  const bool is_aligned = (reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % kBytes == 0;
  if (is_aligned) emulated::self->copies.back().push_back({to, from, kBytes, is_there});
}
inline void CommitCopies() { emulated::self->copies.emplace_back(); }
template <int kNewer>
void WaitForCopies() {
  std::deque<std::vector<emulated::Copy>>& groups = emulated::self->copies;
  while (groups.size() > kNewer + 1) {  // the last group is still open
    for (const emulated::Copy& copy : groups.front()) {
      if (copy.is_there) {
        std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
      } else {
        std::memset(copy.to, 0, static_cast<size_t>(copy.bytes));
      }
    }
    groups.pop_front();
  }
}

inline unsigned long __cvta_generic_to_shared(const void* at) { return reinterpret_cast<uintptr_t>(at); }

namespace emulated {

// As tensor cores add: all terms are aligned to the largest and cut off one bit below a float's last, and so is the sum
// to a float. Towards zero, unlike ordinary additions.
template <size_t kCount>
float AddedTowardsZero(const std::array<double, kCount>& terms) {
  int exponent = -1000;
  double plain = 0;
  for (const double term : terms) {
    plain += term;
    if (term != 0 && std::isfinite(term)) exponent = std::max(exponent, std::ilogb(term));
  }
  if (!std::isfinite(plain) || exponent < -100) return static_cast<float>(plain);
  double sum = 0;
  for (const double term : terms) sum += std::trunc(std::ldexp(term, 24 - exponent));
  sum = std::ldexp(sum, exponent - 24);
  if (sum == 0) return 0;
  const int last = std::ilogb(sum) - 23;
  return static_cast<float>(std::ldexp(std::trunc(std::ldexp(sum, -last)), last));
}

}  // namespace emulated

// c += a b, a 16 x 8 and b 8 x 8 of TF32; PTX's layout of m16n8k8.
inline void MultiplyTf32(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  emulated::Warp& warp = *emulated::self->warp;
  const unsigned lane = threadIdx.x % 32;
  for (int q = 0; q < 4; ++q) warp.left[lane][q] = std::bit_cast<float>(a[q] & 0xffffe000u);
  for (int q = 0; q < 2; ++q) warp.right[lane][q] = std::bit_cast<float>(b[q] & 0xffffe000u);
  emulated::Wait(warp.barrier);
  for (unsigned q = 0; q < 4; ++q) {
    const unsigned row = lane / 4, column = lane % 4 * 2 + q % 2;
    std::array<double, 9> terms;
    for (unsigned k = 0; k < 8; ++k) {
      terms[k] = static_cast<double>(warp.left[row * 4 + k % 4][q / 2 + k / 4 * 2]) *
                 static_cast<double>(warp.right[column * 4 + k % 4][k / 4]);
    }
    terms[8] = c[q];
    c[q] = emulated::AddedTowardsZero(terms);
  }
  emulated::Wait(warp.barrier);
}

inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline float __expf(float x) { return expf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }

inline float MaxOrNan(float x, float y) { return x > y || x != x ? x : y; }
inline float MinOrNan(float x, float y) { return x < y || x != x ? x : y; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline void __threadfence() {}
template <class T>
T atomicAdd(T* to, T value) {
  const T before = *to;
  *to += value;
  return before;
}

template <class A, class B>
std::common_type_t<A, B> max(A a, B b) {
  return a < b ? b : a;
}
template <class A, class B>
std::common_type_t<A, B> min(A a, B b) {
  return a < b ? a : b;
}
inline long ceil_div(long a, long b) { return (a + b - 1) / b; }

template <class T>
T* zeroed_workspace(long count) {
  static std::deque<std::vector<float4>> kept;
  kept.emplace_back(static_cast<size_t>(count) * sizeof(T) / 16 + 1, float4{0, 0, 0, 0});
  return reinterpret_cast<T*>(kept.back().data());
}
template <class T>
T* workspace(long count) {
  static std::deque<std::vector<float4>> kept;
  kept.emplace_back(static_cast<size_t>(count) * sizeof(T) / 16 + 1, float4{NAN, NAN, NAN, NAN});
  return reinterpret_cast<T*>(kept.back().data());
}

#include "cuda_products_on_cpu.h"
