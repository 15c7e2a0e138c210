#include "env/cpu/generator.h"

#include <sys/random.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "env/cpu/parallel_for.h"
#include "env/error.h"

namespace kevin {
namespace {

constexpr int64_t kGrain = 1 << 16;

// A keyed 32-bit mixer (two multiply-xorshift rounds and a key in between): not cryptographic, but each fill
// has a fresh 64-bit key, and it vectorises.
struct Key {
  uint32_t low, high;
};

inline uint32_t Mix(uint32_t counter, Key key) {
  uint32_t x = counter ^ key.low;
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15;
  x += key.high;
  x *= 0x846ca68bU;
  x ^= x >> 16;
  x *= 0x9e3779b1U;
  x ^= x >> 15;
  return x;
}

uint64_t SplitMix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// Each block of 2^32 elements has its own key.
Key BlockKey(uint64_t seed, int64_t block) {
  const uint64_t mixed = SplitMix(seed ^ SplitMix(static_cast<uint64_t>(block)));
  return {static_cast<uint32_t>(mixed), static_cast<uint32_t>(mixed >> 32)};
}

inline float SignedUnit(uint32_t bits) { return static_cast<float>(static_cast<int32_t>(bits)) * 0x1p-31F; }
inline float Unit(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24F; }

// Variance 1, zero mean, bell-shaped: three uniforms added. Two of them are the first one's bits multiplied
// by odd numbers, which is as good as independent for a sum and three times as fast. Full 24-bit mantissas,
// so that rounding to a shorter type always shows.
inline float BellShaped(uint32_t i, Key key) {
  const uint32_t bits = Mix(i, key);
  return SignedUnit(bits) + SignedUnit(bits * 0x2c1b3c6dU) + SignedUnit(bits * 0x297a2d39U);
}

inline float HeavyTailed(uint32_t i, Key key) {
  const uint32_t bits = Mix(i, key);
  const float u = SignedUnit(bits);
  const float v = Unit(bits * 0x2c1b3c6dU);
  return u / (0.03F + v);  // up to +-33, most within +-2
}

template <typename Draw>
void Fill(uint64_t seed, int64_t elements, int threads, float scale, float offset, float* out,
          const Draw& draw) {
  ParallelFor(elements, kGrain, threads, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const Key key = BlockKey(seed, begin >> 32);
      const int64_t stop = std::min(end, ((begin >> 32) + 1) << 32);
      const auto count = static_cast<uint32_t>(stop - begin);
      const auto first = static_cast<uint32_t>(begin);
      float* place = out + begin;
      for (uint32_t i = 0; i < count; ++i) place[i] = draw(first + i, key) * scale + offset;
      begin = stop;
    }
  });
}

enum Member { kBell, kUniform, kHeavy, kLarge };

Distribution Resolve(const TensorSpec& spec, InputMode mode, uint64_t seed, float* scale) {
  if (mode == InputMode::kKernelBench) return Distribution::kUniform01;
  if (spec.distribution != Distribution::kMixture) return spec.distribution;
  switch (static_cast<Member>(seed % kMixtureMembers)) {
    case kBell:
      return Distribution::kNormal;
    case kUniform:
      *scale *= 2;
      return Distribution::kUniform;
    case kHeavy:
      return Distribution::kHeavyTailed;
    case kLarge:
      *scale *= 8;
      return Distribution::kNormal;
  }
  return Distribution::kNormal;
}

void FillFloats(const TensorSpec& spec, InputMode mode, uint64_t seed, int64_t elements, int threads,
                float* out) {
  const bool kernelbench = mode == InputMode::kKernelBench;
  float scale = kernelbench ? 1 : static_cast<float>(spec.scale);
  const float offset = kernelbench ? 0 : static_cast<float>(spec.offset);
  switch (Resolve(spec, mode, seed, &scale)) {
    case Distribution::kMixture:
    case Distribution::kNormal:
      return Fill(seed, elements, threads, scale, offset, out,
                  [](uint32_t i, Key key) { return BellShaped(i, key); });
    case Distribution::kUniform:
      return Fill(seed, elements, threads, scale, offset, out,
                  [](uint32_t i, Key key) { return SignedUnit(Mix(i, key)); });
    case Distribution::kUniform01:
      return Fill(seed, elements, threads, scale, offset, out,
                  [](uint32_t i, Key key) { return Unit(Mix(i, key)); });
    case Distribution::kHeavyTailed:
      return Fill(seed, elements, threads, scale, offset, out,
                  [](uint32_t i, Key key) { return HeavyTailed(i, key); });
    case Distribution::kPositive:
      return Fill(seed, elements, threads, scale, offset, out,
                  [](uint32_t i, Key key) { return 0.01F + Unit(Mix(i, key)); });
  }
}

}  // namespace

void FillTensor(const TensorSpec& spec, InputMode mode, uint64_t seed, int64_t elements, int threads,
                void* data) {
  if (spec.dtype != DType::kF32) {
    throw Error(ExitCode::kBadRequest,
                "input `" + spec.name + "`: inputs of type " + DTypeName(spec.dtype) +
                    " cannot be drawn on a CPU yet",
                "use float32 inputs");
  }
  FillFloats(spec, mode, seed, elements, threads, static_cast<float*>(data));
}

const char* MixtureMemberName(int member) {
  static constexpr const char* kNames[kMixtureMembers] = {"normal", "uniform", "heavy-tailed", "normal x8"};
  return kNames[member];
}

uint64_t SecretSeed() {
  uint64_t seed = 0;
  if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed)) {
    throw Error(ExitCode::kBroken, "no random numbers from the system");
  }
  return seed;
}

void FillPoison(void* data, int64_t bytes, int threads) {
  auto* words = static_cast<uint32_t*>(data);
  ParallelFor(bytes / 4, kGrain, threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) words[i] = kPoison;
  });
}

}  // namespace kevin
