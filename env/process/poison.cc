#include "env/process/poison.h"

#include <emmintrin.h>

#include "env/process/machine.h"

namespace kevin {
namespace {

constexpr int64_t kStreamedBytes = 1 << 20;  // from here on past the caches: a third faster
constexpr int64_t kBlockWords = 1024;

__attribute__((target_clones("arch=x86-64-v4", "default"))) void Fill(Poison poison, uint32_t first,
                                                                      uint32_t* words, int64_t count) {
  for (int64_t i = 0; i < count; ++i) words[i] = PoisonWord(poison, first + static_cast<uint32_t>(i));
}

// `words` are aligned to 16 bytes.
void Stream(Poison poison, uint32_t first, uint32_t* words, int64_t count) {
  alignas(64) uint32_t block[kBlockWords];
  const int64_t whole = count / kBlockWords * kBlockWords;
  for (int64_t at = 0; at < whole; at += kBlockWords) {
    Fill(poison, first + static_cast<uint32_t>(at), block, kBlockWords);
    for (int64_t i = 0; i < kBlockWords; i += 4)
      _mm_stream_si128(reinterpret_cast<__m128i*>(words + at + i),
                       _mm_load_si128(reinterpret_cast<const __m128i*>(block + i)));
  }
  _mm_sfence();
  Fill(poison, first + static_cast<uint32_t>(whole), words + whole, count - whole);
}

}  // namespace

void FillPoison(const Poison& poison, void* data, int64_t bytes, int threads, uint32_t first) {
  auto* words = static_cast<uint32_t*>(data);
  const bool is_streamed =
      bytes >= kStreamedBytes && reinterpret_cast<uintptr_t>(data) % sizeof(__m128i) == 0;
  ParallelFor(bytes / 4, 1 << 16, threads, [&](int64_t begin, int64_t end) {
    (is_streamed ? Stream : Fill)(poison, first + static_cast<uint32_t>(begin), words + begin, end - begin);
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
