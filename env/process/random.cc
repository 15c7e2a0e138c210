#include "env/process/random.h"

#include <immintrin.h>
#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "env/error.h"
#include "env/process/generator.h"

namespace kevin {
namespace {

constexpr std::array<uint32_t, 4> kChaChaConstants = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};

// The quarter round of RFC 8439, on numbers or on vectors of them.
#define KEVIN_QUARTER_ROUND(ROTATE, a, b, c, d) \
  a += b;                                       \
  d = ROTATE<16>(d ^ a);                        \
  c += d;                                       \
  b = ROTATE<12>(b ^ c);                        \
  a += b;                                       \
  d = ROTATE<8>(d ^ a);                         \
  c += d;                                       \
  b = ROTATE<7>(b ^ c)

#define KEVIN_DOUBLE_ROUND(ROTATE, x)                    \
  KEVIN_QUARTER_ROUND(ROTATE, x[0], x[4], x[8], x[12]);  \
  KEVIN_QUARTER_ROUND(ROTATE, x[1], x[5], x[9], x[13]);  \
  KEVIN_QUARTER_ROUND(ROTATE, x[2], x[6], x[10], x[14]); \
  KEVIN_QUARTER_ROUND(ROTATE, x[3], x[7], x[11], x[15]); \
  KEVIN_QUARTER_ROUND(ROTATE, x[0], x[5], x[10], x[15]); \
  KEVIN_QUARTER_ROUND(ROTATE, x[1], x[6], x[11], x[12]); \
  KEVIN_QUARTER_ROUND(ROTATE, x[2], x[7], x[8], x[13]);  \
  KEVIN_QUARTER_ROUND(ROTATE, x[3], x[4], x[9], x[14])

ChaChaBlock FirstState(const SecretKey& key, uint64_t counter, uint64_t nonce) {
  ChaChaBlock state;
  std::copy(kChaChaConstants.begin(), kChaChaConstants.end(), state.begin());
  std::copy(key.words.begin(), key.words.end(), state.begin() + 4);
  state[12] = static_cast<uint32_t>(counter), state[13] = static_cast<uint32_t>(counter >> 32);
  state[14] = static_cast<uint32_t>(nonce), state[15] = static_cast<uint32_t>(nonce >> 32);
  return state;
}

template <int kBits>
inline uint32_t RotateWord(uint32_t x) {
  return std::rotl(x, kBits);
}

using Lanes8 = uint32_t __attribute__((vector_size(32)));
using Lanes16 = uint32_t __attribute__((vector_size(64)));

template <int kBits>
inline Lanes8 RotateLanes8(Lanes8 x) {
  if constexpr (kBits % 8 != 0) return x << kBits | x >> (32 - kBits);
  // Whole bytes move in one instruction.
  const __m256i order =
      kBits == 16
          ? _mm256_set_epi64x(0x0d0c0f0e09080b0a, 0x0504070601000302, 0x0d0c0f0e09080b0a, 0x0504070601000302)
          : _mm256_set_epi64x(0x0e0d0c0f0a09080b, 0x0605040702010003, 0x0e0d0c0f0a09080b, 0x0605040702010003);
  return reinterpret_cast<Lanes8>(_mm256_shuffle_epi8(reinterpret_cast<__m256i>(x), order));
}

template <int kBits>
__attribute__((target("avx512f"), always_inline)) inline Lanes16 RotateLanes16(Lanes16 x) {
  return x << kBits | x >> (32 - kBits);  // one instruction
}

// The blocks of a group, as many at once as a vector has lanes. `first` is the state of block 0 of the group,
// whose counter is a multiple of 32: adding a lane never carries.
#define KEVIN_GROUP(NAME, LANES, WIDTH, ROTATE, COUNT)                                          \
  void NAME(const ChaChaBlock& first, uint32_t* words) {                                        \
    for (uint32_t block = 0; block < kGroupBlocks; block += (WIDTH)) {                          \
      LANES start[16], x[16];                                                                   \
      _Pragma("GCC unroll 16") for (int i = 0; i < 16; ++i) start[i] = LANES{} + first[i];      \
      start[12] += LANES COUNT + block;                                                         \
      _Pragma("GCC unroll 16") for (int i = 0; i < 16; ++i) x[i] = start[i];                    \
      for (int i = 0; i < kChaChaRounds; i += 2) {                                              \
        KEVIN_DOUBLE_ROUND(ROTATE, x);                                                          \
      }                                                                                         \
      _Pragma("GCC unroll 16") for (int i = 0; i < 16; ++i) {                                   \
        const LANES sum = x[i] + start[i];                                                      \
        std::memcpy(words + static_cast<int64_t>(i) * kGroupBlocks + block, &sum, sizeof(sum)); \
      }                                                                                         \
    }                                                                                           \
  }

#define KEVIN_COUNT_8 \
  { 0, 1, 2, 3, 4, 5, 6, 7 }
#define KEVIN_COUNT_16 \
  { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 }
KEVIN_GROUP(GroupOf8, Lanes8, 8, RotateLanes8, KEVIN_COUNT_8)
__attribute__((target("avx512f"))) KEVIN_GROUP(GroupOf16, Lanes16, 16, RotateLanes16, KEVIN_COUNT_16)

}  // namespace

SecretKey NewSecretKey() {
  SecretKey key;
  if (getrandom(key.words.data(), sizeof(key.words), 0) != sizeof(key.words))
    throw Error(ExitCode::kBroken, "no random numbers from the system");
  return key;
}

ChaChaBlock MakeChaChaBlock(const SecretKey& key, uint64_t counter, uint64_t nonce, int rounds) {
  const ChaChaBlock start = FirstState(key, counter, nonce);
  ChaChaBlock x = start;
  for (int i = 0; i < rounds; i += 2) {
    KEVIN_DOUBLE_ROUND(RotateWord, x);
  }
  for (size_t i = 0; i < x.size(); ++i) x[i] += start[i];
  return x;
}

void MakeKeystreamGroup(const SecretKey& key, uint64_t nonce, int64_t group, uint32_t* words) {
  static const bool kWide = __builtin_cpu_supports("avx512f");
  const ChaChaBlock first = FirstState(key, static_cast<uint64_t>(group * kGroupBlocks), nonce);
  return kWide ? GroupOf16(first, words) : GroupOf8(first, words);
}

void SecretRandom::Refill() {
  MakeKeystreamGroup(key_, 0, groups_++, words_.data());
  used_ = 0;
}

std::vector<uint64_t> DrawingKeys::Renew() {
  root_ = NewSecretKey();
  drawings_ = 0;
  std::vector<uint64_t> record;
  for (size_t i = 0; i < root_.words.size(); i += 2)
    record.push_back(uint64_t{root_.words[i + 1]} << 32 | root_.words[i]);
  return record;
}

ValueStream DrawingKeys::Next() {
  const ChaChaBlock block = MakeChaChaBlock(root_, drawings_++, 0);
  ValueStream drawing;
  std::copy_n(block.begin(), drawing.key.words.size(), drawing.key.words.begin());
  drawing.member = static_cast<int>(block[8] % kMixtureMembers);
  return drawing;
}

}  // namespace kevin
