#pragma once
// The end of cuda_on_cpu.h: functions of products that are inline assembly in the text (ContractCopy, ContractMma, ...),
// with the semantics of PTX.

#include <array>

template <int kBytes>
void ContractCopy(void* to, const void* from, bool is_there) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  CopyAsync<kBytes>(to, from, is_there);
}
inline void ContractCommit() { CommitCopies(); }
template <int kNewer>
void ContractWait() {
  WaitForCopies<kNewer>();
}
inline void ContractMmaTf32(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  MultiplyTf32(c, a, b);
}

// ldmatrix: lane l gives row l % 8 of matrix l / 8, and gets elements 2 * (l % 4) and the next of row l / 4 of each.
template <bool kTransposed>
void ContractMatrix(unsigned (&to)[4], const void* row) {
  const unsigned lane = threadIdx.x % 32;
  const bool is_aligned = reinterpret_cast<uintptr_t>(row) % 16 == 0;
  const uint64_t own = reinterpret_cast<uint64_t>(row);
  emulated::Warp& warp = *emulated::self->warp;
  warp.slots[lane] = own;
  emulated::Wait(warp.barrier);
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    const auto at = [&](unsigned r, unsigned c) {
      uint16_t bits;
      std::memcpy(&bits,
                  reinterpret_cast<const char*>(warp.slots[matrix * 8 + (kTransposed ? c : r)]) +
                      2 * (kTransposed ? r : c),
                  2);
      return bits;
    };
    to[matrix] =
        is_aligned ? at(lane / 4, lane % 4 * 2) | static_cast<unsigned>(at(lane / 4, lane % 4 * 2 + 1)) << 16
                   : 0x7fff7fffu;
  }
  emulated::Wait(warp.barrier);
}

// c += a b, a 16 x 16 and b 16 x 8; PTX's layout of m16n8k16.
template <bool kBrain>
void ContractMma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  static std::map<const void*, std::array<std::array<unsigned, 6>, 32>> operands;
  emulated::Warp& warp = *emulated::self->warp;
  const unsigned lane = threadIdx.x % 32;
  std::array<std::array<unsigned, 6>, 32>& all = operands[&warp];
  all[lane] = {a[0], a[1], a[2], a[3], b0, b1};
  const auto value = [&](unsigned of, unsigned slot, unsigned half) -> double {
    const auto bits = static_cast<uint16_t>(all[of][slot] >> (16 * half));
    if (kBrain) return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
    return static_cast<float>(std::bit_cast<_Float16>(bits));
  };
  emulated::Wait(warp.barrier);
  for (unsigned q = 0; q < 4; ++q) {
    const unsigned row = lane / 4 + q / 2 * 8, column = lane % 4 * 2 + q % 2;
    double sum = c[q];
    for (unsigned k = 0; k < 16; ++k) {
      sum += value(row % 8 * 4 + k % 8 / 2, row / 8 + k / 8 * 2, k % 2) *
             value(column * 4 + k % 8 / 2, 4 + k / 8, k % 2);
    }
    c[q] = static_cast<float>(sum);
  }
  emulated::Wait(warp.barrier);
}

// --- Attention in 16 bits ---
template <bool kBrain>
void AttendPack(unsigned& to, float low, float high) {
  const auto bits = [](float x) -> unsigned {
    if (kBrain) return __nv_bfloat16(x).bits;
    return std::bit_cast<uint16_t>(__half(x).bits);
  };
  to = bits(low) | bits(high) << 16;
}
template <bool kBrain>
void AttendUnpack(unsigned pair, float& low, float& high) {
  const auto value = [](unsigned bits) -> float {
    if (kBrain) return std::bit_cast<float>(bits << 16);
    return static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(bits)));
  };
  low = value(pair & 0xffffu), high = value(pair >> 16);
}
inline void AttendPower(float& to, float x) { to = exp2f(x); }

// --- wgmma and TMA: shared memory is addressed by offsets in that of the block, from kSharedBase ---
#define __grid_constant__
inline void __syncwarp() { emulated::Wait(emulated::self->warp->barrier); }

inline bool IsAligned16(const void* at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; }
struct CUtensorMap {
  const char* base;
  long bytes;  // of an element
  std::array<long, 3> sizes, strides, box;
  unsigned swizzle;
};
template <class T>
CUtensorMap tensor_map(const T* base, std::array<long, 3> sizes, std::array<long, 2> strides,
                       std::array<long, 3> box, unsigned swizzle) {
  const bool is_valid = strides[0] % 16 == 0 && strides[1] % 16 == 0 && strides[0] > 0 && strides[1] > 0 &&
                        box[0] * long(sizeof(T)) == swizzle && box[1] <= 256 && IsAligned16(base);
  if (!is_valid) return {};
  return {reinterpret_cast<const char*>(base), sizeof(T), sizes,
          {sizeof(T), strides[0], strides[1]}, box,       swizzle};
}

namespace emulated {

constexpr unsigned kSharedBase = 16;
struct Transactions {
  int members = 0, pending = 0;
  long bytes = 0;
  unsigned phase = 0;
  void Check() {
    if (pending != 0 || bytes != 0) return;
    phase ^= 1;
    pending = members;
  }
};
inline std::map<std::pair<Block*, unsigned>, Transactions> transactions;
inline Transactions& At(unsigned barrier) { return transactions[{self->block, barrier}]; }
inline char* SharedAt(unsigned at) {
  return reinterpret_cast<char*>(self->block->dynamic_shared.data()) + (at - kSharedBase);
}
// Rows of `bytes`: groups of 16 bytes change places with the number of the row in its pattern.
inline unsigned Swizzled(unsigned at, unsigned bytes) { return at ^ ((at >> 7 & (bytes / 16 - 1)) << 4); }

// Element (line, term) of an operand in shared memory.
template <bool kBrain>
double ElementOf(uint64_t matrix, bool lines, unsigned line, unsigned term) {
  const auto start = unsigned(matrix & 0x3fff) << 4, lead = unsigned(matrix >> 16 & 0x3fff) << 4,
             stride = unsigned(matrix >> 32 & 0x3fff) << 4, width = 256u >> (matrix >> 62);
  const unsigned at = lines ? start + line / 64 * lead + term / 8 * stride + term % 8 * 128 + line % 64 * 2
                            : start + line / 8 * stride + line % 8 * width + term * 2;
  uint16_t bits;
  std::memcpy(&bits, SharedAt(Swizzled(at, width)), 2);
  if (kBrain) return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  return static_cast<float>(std::bit_cast<_Float16>(bits));
}

}  // namespace emulated

inline unsigned ContractShared(const void* at) {
  return emulated::kSharedBase +
         unsigned(static_cast<const char*>(at) -
                  reinterpret_cast<const char*>(emulated::self->block->dynamic_shared.data()));
}
inline void ContractBarrier(unsigned barrier, int arrivals) {
  emulated::At(barrier) = {arrivals, arrivals, 0, 0};
}
inline void ContractBarriersReady() {}
inline void ContractExpect(unsigned barrier, int bytes) {
  emulated::Transactions& one = emulated::At(barrier);
  one.bytes += bytes;
  --one.pending;
  one.Check();
}
inline void ContractArrive(unsigned barrier) {
  emulated::Transactions& one = emulated::At(barrier);
  --one.pending;
  one.Check();
}
inline void ContractAwait(unsigned barrier, unsigned parity) {
  while (emulated::At(barrier).phase == parity) emulated::Yield();
}
inline void ContractFetch(unsigned to, const CUtensorMap* map, unsigned barrier, int x, int y, int batch) {
  const std::array<long, 3> first = {x, y, batch};
  unsigned at = to;
  for (long b = 0; b < map->box[2]; ++b) {
    for (long r = 0; r < map->box[1]; ++r) {
      for (long c = 0; c < map->box[0]; ++c, at += unsigned(map->bytes)) {
        const std::array<long, 3> place = {first[0] + c, first[1] + r, first[2] + b};
        char* const target = emulated::SharedAt(emulated::Swizzled(at, map->swizzle));
        std::memset(target, 0, size_t(map->bytes));
        const char* from = map->base;
        bool is_there = true;
        for (size_t d = 0; d < 3; ++d) {
          is_there &= place[d] >= 0 && place[d] < map->sizes[d];
          from += place[d] * map->strides[d];
        }
        if (is_there) std::memcpy(target, from, size_t(map->bytes));
      }
    }
  }
  emulated::Transactions& one = emulated::At(barrier);
  one.bytes -= map->box[0] * map->box[1] * map->box[2] * map->bytes;
  one.Check();
}
template <bool kMore>
void ContractRegisters() {}
inline void ContractOpen() {}
inline void ContractClose() {}
template <int kNewer>
void ContractDone() {}

// d += a b, a 64 x 16 and b 16 x 2 kCount; PTX's layout of the accumulators of wgmma.
template <bool kBrain, bool kLeftLines, bool kRightLines, int kCount>
void ContractWarpgroup(float (&d)[kCount], unsigned long a, unsigned long b) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  for (unsigned i = 0; i < kCount; ++i) {
    const unsigned row = warp * 16 + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    double sum = d[i];
    for (unsigned k = 0; k < 16; ++k)
      sum += emulated::ElementOf<kBrain>(a, kLeftLines, row, k) *
             emulated::ElementOf<kBrain>(b, kRightLines, column, k);
    d[i] = static_cast<float>(sum);
  }
}
