#pragma once
// For attacks that feel whether the marks of accesses were removed before a batch. The test pastes this text in place of
// #include "removed_marks.h".
#include <sys/mman.h>

#include <cstdint>

// Cycles of a first look: 5,000 with marks and 34,000 without on an EPYC.
constexpr uint64_t kLookWithoutMarks = 15'000;

// One page at many addresses: its data are cached, the marks are those of each address.
inline uint64_t LookAtPages() {
  constexpr int kLookedAt = 512;
  static volatile char sink;
  static char* pages[kLookedAt];
  if (pages[0] == nullptr) {
    pages[0] =
        static_cast<char*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    for (int i = 1; i < kLookedAt; ++i)
      pages[i] = static_cast<char*>(mremap(pages[0], 0, 4096, MREMAP_MAYMOVE));
    for (const char* at : pages) sink = *at;
  }
  const uint64_t start = __builtin_ia32_rdtsc();
  for (const char* at : pages) sink = *at;
  return __builtin_ia32_rdtsc() - start;
}
