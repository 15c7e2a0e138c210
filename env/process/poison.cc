#include "env/process/poison.h"

#include "env/process/machine.h"

// The products of 32 bits want instructions that the oldest processors lack.
#define KEVIN_WIDEST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))

namespace kevin {
namespace {

KEVIN_WIDEST void Fill(uint64_t key, bool is_ordinary, uint32_t first, uint32_t* words, int64_t count) {
  const Poison poison{key, is_ordinary};
  for (int64_t i = 0; i < count; ++i) words[i] = PoisonWord(poison, first + static_cast<uint32_t>(i));
}

KEVIN_WIDEST uint32_t Changes(uint64_t key, bool is_ordinary, uint32_t first, const uint32_t* words,
                              int64_t count) {
  const Poison poison{key, is_ordinary};
  uint32_t changed = 0;
  for (int64_t i = 0; i < count; ++i)
    changed |= words[i] ^ PoisonWord(poison, first + static_cast<uint32_t>(i));
  return changed;
}

}  // namespace

void FillPoison(const Poison& poison, void* data, int64_t bytes, int threads, uint32_t first) {
  auto* words = static_cast<uint32_t*>(data);
  ParallelFor(bytes / 4, 1 << 16, threads, [&](int64_t begin, int64_t end) {
    Fill(poison.key, poison.is_ordinary, first + static_cast<uint32_t>(begin), words + begin, end - begin);
  });
}

bool IsAllPoison(const Poison& poison, const void* data, uint32_t first, int64_t words) {
  return Changes(poison.key, poison.is_ordinary, first, static_cast<const uint32_t*>(data), words) == 0;
}

}  // namespace kevin
