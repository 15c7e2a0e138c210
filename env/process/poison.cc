#include "env/process/poison.h"

#include "env/process/machine.h"

namespace kevin {
namespace {

__attribute__((target_clones("arch=x86-64-v4", "default"))) void Fill(Poison poison, uint32_t first,
                                                                      uint32_t* words, int64_t count) {
  for (int64_t i = 0; i < count; ++i) words[i] = PoisonWord(poison, first + static_cast<uint32_t>(i));
}

}  // namespace

void FillPoison(const Poison& poison, void* data, int64_t bytes, int threads, uint32_t first) {
  auto* words = static_cast<uint32_t*>(data);
  ParallelFor(bytes / 4, 1 << 16, threads, [&](int64_t begin, int64_t end) {
    Fill(poison, first + static_cast<uint32_t>(begin), words + begin, end - begin);
  });
}

bool IsAllPoison(const Poison& poison, const void* data, uint32_t first, int64_t words) {
  const auto* word = static_cast<const uint32_t*>(data);
  uint32_t changed = 0;
  for (int64_t i = 0; i < words; ++i)
    changed |= word[i] ^ PoisonWord(poison, first + static_cast<uint32_t>(i));
  return changed == 0;
}

}  // namespace kevin
