#include "policies/local/files/sha256_rounds.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace kevin::local {

#ifdef __x86_64__
namespace {

alignas(16) constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

// The two halves of the state as the instructions want them: words A B E F and C D G H, the first highest.
struct Halves {
  __m128i abef, cdgh;
};

__attribute__((target("sha,sse4.1"))) Halves Arrange(const uint32_t state[8]) {
  const auto* words = reinterpret_cast<const __m128i*>(state);
  const __m128i badc = _mm_shuffle_epi32(_mm_loadu_si128(words), 0xB1);
  const __m128i hgfe = _mm_shuffle_epi32(_mm_loadu_si128(words + 1), 0x1B);
  return {_mm_alignr_epi8(badc, hgfe, 8), _mm_blend_epi16(hgfe, badc, 0xF0)};
}

__attribute__((target("sha,sse4.1"))) void Store(const Halves& halves, uint32_t state[8]) {
  const __m128i feba = _mm_shuffle_epi32(halves.abef, 0x1B), dchg = _mm_shuffle_epi32(halves.cdgh, 0xB1);
  auto* words = reinterpret_cast<__m128i*>(state);
  _mm_storeu_si128(words, _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(words + 1, _mm_alignr_epi8(dchg, feba, 8));
}

}  // namespace

bool HasShaInstructions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool has_sse41 = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c >> 19 & 1) != 0;
  return has_sse41 && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b >> 29 & 1) != 0;
}

__attribute__((target("sha,sse4.1"))) void Sha256Blocks(uint32_t state[8], const uint8_t* data,
                                                        size_t blocks) {
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  Halves now = Arrange(state);
  for (; blocks > 0; --blocks, data += 64) {
    const Halves before = now;
    __m128i word[4];  // the last sixteen words of the schedule, four in each
    for (int i = 0; i < 4; ++i)
      word[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(data) + i), big_endian);
    for (int group = 0; group < 16; ++group) {
      __m128i& oldest = word[group & 3];
      const __m128i current = oldest;
      const __m128i input =
          _mm_add_epi32(current, _mm_load_si128(reinterpret_cast<const __m128i*>(kRound) + group));
      now.cdgh = _mm_sha256rnds2_epu32(now.cdgh, now.abef, input);
      now.abef = _mm_sha256rnds2_epu32(now.abef, now.cdgh, _mm_shuffle_epi32(input, 0x0E));
      if (group >= 12) continue;
      const __m128i second = word[(group + 1) & 3], third = word[(group + 2) & 3],
                    latest = word[(group + 3) & 3];
      const __m128i part =
          _mm_add_epi32(_mm_sha256msg1_epu32(current, second), _mm_alignr_epi8(latest, third, 4));
      oldest = _mm_sha256msg2_epu32(part, latest);
    }
    now.abef = _mm_add_epi32(now.abef, before.abef);
    now.cdgh = _mm_add_epi32(now.cdgh, before.cdgh);
  }
  Store(now, state);
}

#else

bool HasShaInstructions() { return false; }
void Sha256Blocks(uint32_t*, const uint8_t*, size_t) {}

#endif

}  // namespace kevin::local
