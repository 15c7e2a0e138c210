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

namespace emulated {

struct Barrier {
  int members = 0, arrived = 0;
  long generation = 0;
};

struct Copy {
  void* to;
  const void* from;
  int bytes;
  bool is_there;
};

struct Cluster;
struct Block {
  dim3 index;
  Cluster* cluster = nullptr;
  Barrier barrier;
  std::vector<float4> dynamic_shared;
  std::map<const void*, std::unique_ptr<float4[]>> shared;
};
struct Warp {
  Barrier barrier;
  uint64_t slots[32];
  float left[32][4], right[32][2];
};
struct Cluster {
  Barrier barrier;
  std::vector<Block> blocks;
  std::vector<Warp> warps;
};

struct Fiber {
  dim3 thread;
  Block* block = nullptr;
  Warp* warp = nullptr;
  std::deque<std::vector<Copy>> copies = {{}};  // committed groups, and the open one at the end
  jmp_buf state;
  bool has_started = false, has_ended = false;
  char* stack = nullptr;
};

inline Fiber* self = nullptr;
inline dim3 grid;
inline jmp_buf scheduler;
inline const std::function<void()>* kernel = nullptr;

constexpr size_t kStack = 64 << 10;

inline void Yield() {
  if (_setjmp(self->state) == 0) _longjmp(scheduler, 1);
}

inline void Wait(Barrier& barrier) {
  const long generation = barrier.generation;
  if (++barrier.arrived == barrier.members) {
    barrier.arrived = 0;
    ++barrier.generation;
    return;
  }
  while (barrier.generation == generation) Yield();
}

inline void Leave(Barrier& barrier) {
  if (--barrier.members > 0 && barrier.arrived == barrier.members) {
    barrier.arrived = 0;
    ++barrier.generation;
  }
}

inline void Enter() {
  (*kernel)();
  self->has_ended = true;
  Leave(self->warp->barrier);
  Leave(self->block->barrier);
  Leave(self->block->cluster->barrier);
  _longjmp(scheduler, 1);
}

inline void Resume(Fiber& fiber) {
  self = &fiber;
  if (_setjmp(scheduler) != 0) return;
  if (fiber.has_started) _longjmp(fiber.state, 1);
  fiber.has_started = true;
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = fiber.stack;
  context.uc_stack.ss_size = kStack;
  context.uc_link = nullptr;
  makecontext(&context, &Enter, 0);
  setcontext(&context);
}

inline char* Stacks(size_t count) {
  static std::map<size_t, char*> kept;
  char*& stacks = kept[count];
  if (stacks == nullptr) {
    stacks = static_cast<char*>(mmap(nullptr, count * kStack, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  }
  return stacks;
}

struct Configuration {
  dim3 grid, block;
  long shared_bytes, cluster = 1;
  Configuration(dim3 g, dim3 b, long shared = 0) : grid(g), block(b), shared_bytes(shared) {}
  Configuration& Clusters(long blocks) {
    cluster = blocks;
    return *this;
  }
};

// Blocks [first, first + configuration.cluster) at once.
inline void RunCluster(const Configuration& configuration, unsigned long first) {
  const auto threads = configuration.block.x;
  const auto blocks = static_cast<unsigned>(configuration.cluster);
  Cluster cluster;
  cluster.barrier.members = static_cast<int>(threads * blocks);
  cluster.blocks.resize(blocks);
  cluster.warps.resize(blocks * ((threads + 31) / 32));
  std::vector<Fiber> fibers(threads * blocks);
  char* stacks = Stacks(fibers.size());
  for (unsigned b = 0; b < blocks; ++b) {
    Block& block = cluster.blocks[b];
    const unsigned long number = first + b;
    block.index = dim3(long(number % grid.x), long(number / grid.x % grid.y), long(number / grid.x / grid.y));
    block.cluster = &cluster;
    block.barrier.members = static_cast<int>(threads);
    block.dynamic_shared.resize(static_cast<size_t>(configuration.shared_bytes + 15) / 16,
                                {NAN, NAN, NAN, NAN});
    for (unsigned t = 0; t < threads; ++t) {
      Fiber& fiber = fibers[b * threads + t];
      fiber.thread = dim3(t, 0, 0);
      fiber.block = &block;
      fiber.warp = &cluster.warps[b * ((threads + 31) / 32) + t / 32];
      ++fiber.warp->barrier.members;
      fiber.stack = stacks + (b * threads + t) * kStack;
    }
  }
  for (bool is_running = true; is_running;) {
    is_running = false;
    for (Fiber& fiber : fibers) {
      if (!fiber.has_ended) Resume(fiber);
      is_running |= !fiber.has_ended;
    }
  }
}

inline void Run(const Configuration& configuration, const std::function<void()>& launched) {
  grid = configuration.grid;
  kernel = &launched;
  const unsigned long blocks = 1UL * grid.x * grid.y * grid.z;
  for (unsigned long first = 0; first < blocks; first += static_cast<unsigned long>(configuration.cluster)) {
    RunCluster(configuration, first);
  }
}

inline void* Shared(const void* key, size_t bytes) {
  std::unique_ptr<float4[]>& memory = self->block->shared[key];
  if (!memory) {
    memory.reset(new float4[bytes / 16 + 1]);
    std::memset(static_cast<void*>(memory.get()), 0xff, bytes);
  }
  return memory.get();
}

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
