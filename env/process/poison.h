#pragma once
// Poison: what stands in an output before a call. Each filling has a new key, and every word of it is another
// value, so that no kernel can know, subtract or copy it. Either kind differs from a finished output:
//
//   not a number     in every floating-point type, an index out of range in integers; what outputs usually get
//   ordinary values  finite and of moderate size; now and then, for kernels that look for values that are not
//                    numbers

#include <cstdint>

namespace kevin {

struct Poison {
  uint64_t key = 0;
  bool is_ordinary = false;  // floating-point outputs only
};

// The word at 4 * `index` bytes from the start of what was filled.
inline uint32_t PoisonWord(const Poison& poison, uint32_t index) {
  uint32_t x = index ^ static_cast<uint32_t>(poison.key);
  x *= 0x7feb352dU;
  x ^= x >> 15;
  x += static_cast<uint32_t>(poison.key >> 32);
  x *= 0x846ca68bU;
  x ^= x >> 16;
  // Each half is a value of its own in 16-bit types: sign and payload are random.
  return poison.is_ordinary ? (x & 0x83ff83ffU) | 0x3c003c00U : (x & 0x803e803eU) | 0x7fc17fc1U;
}

// The kind that is not a number, with any key. `half`: a value of a 16-bit type.
inline bool IsPoisonHalf(uint16_t half) { return (half & 0x7fc1U) == 0x7fc1U; }
inline bool IsPoisonWord(uint32_t word) { return (word & 0x7fc17fc1U) == 0x7fc17fc1U; }

// Fills whole words, those of the filling from word `first` on. `threads` share the work.
void FillPoison(const Poison& poison, void* data, int64_t bytes, int threads, uint32_t first = 0);

// Whether these words, of the filling from word `first` on, are all as they were filled.
bool IsAllPoison(const Poison& poison, const void* data, uint32_t first, int64_t words);

}  // namespace kevin
