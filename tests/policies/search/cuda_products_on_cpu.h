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
