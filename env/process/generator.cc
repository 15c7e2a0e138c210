#include "env/process/generator.h"

#include <sys/random.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "env/error.h"
#include "env/problem/precision.h"
#include "env/process/parallel_for.h"

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

// What a drawn value is in the tensor's type. Rounding may lift the largest of [0, 1) * scale to scale
// itself.
inline void Store(float value, float, float* place) { *place = value; }
inline void Store(float value, float, BFloat16* place) { Round(value, place); }
inline void Store(float value, float, Float16* place) {
  Round(std::clamp(value, -65504.0F, 65504.0F), place);
}
inline void Store(float value, float limit, int64_t* place) {
  *place = static_cast<int64_t>(std::floor(value)) - (value == limit ? 1 : 0);
}
inline void Store(float value, float, bool* place) { *place = value > 0; }

template <typename Value, typename Draw>
void Fill(uint64_t seed, int64_t elements, int threads, float scale, float offset, Value* out,
          const Draw& draw) {
  ParallelFor(elements, kGrain, threads, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const Key key = BlockKey(seed, begin >> 32);
      const int64_t stop = std::min(end, ((begin >> 32) + 1) << 32);
      const auto count = static_cast<uint32_t>(stop - begin);
      const auto first = static_cast<uint32_t>(begin);
      Value* place = out + begin;
      for (uint32_t i = 0; i < count; ++i) {
        Store(draw(first + i, key) * scale + offset, scale + offset, place + i);
      }
      begin = stop;
    }
  });
}

enum Member { kBell, kUniform, kHeavy, kLarge };

Distribution Resolve(const TensorSpec& spec, uint64_t seed, float* scale) {
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

template <typename Value>
void FillValues(const TensorSpec& spec, uint64_t seed, int64_t elements, int threads, Value* out) {
  auto scale = static_cast<float>(spec.scale);
  const auto offset = static_cast<float>(spec.offset);
  switch (Resolve(spec, seed, &scale)) {
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
    case Distribution::kStored:  // copied by FillTensor
      return;
    case Distribution::kSigns:
      return Fill(seed, elements, threads, scale, offset, out,
                  [](uint32_t i, Key key) { return (Mix(i, key) >> 31) != 0 ? 1.0F : -1.0F; });
  }
}

template <typename Value>
void Impose(Structure structure, int64_t rows, int threads, Value* matrix) {
  ParallelFor(rows, std::max<int64_t>(1, kGrain / rows), threads, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      Value* line = matrix + row * rows;
      if (structure == Structure::kUpper) std::fill(line, line + row, Value{});
      if (structure == Structure::kLower) std::fill(line + row + 1, line + rows, Value{});
      // Reads the upper half, which nobody changes.
      for (int64_t i = 0; structure == Structure::kSymmetric && i < row; ++i)
        line[i] = matrix[i * rows + row];
    }
  });
}

template <typename Value>
void FillAs(const TensorSpec& spec, uint64_t seed, int64_t elements, int threads, Value* out) {
  FillValues(spec, seed, elements, threads, out);
  if (spec.structure == Structure::kNone) return;
  Impose(spec.structure, std::llround(std::sqrt(static_cast<double>(elements))), threads, out);
}

}  // namespace

void FillTensor(const TensorSpec& spec, InputMode mode, uint64_t seed, int64_t elements, int threads,
                void* data) {
  if (spec.stored) {
    std::memcpy(data, spec.stored->data(), spec.stored->size());
    return;
  }
  TensorSpec drawn = spec;
  if (mode == InputMode::kKernelBench && !spec.is_param && IsFloating(spec.dtype) &&
      spec.distribution != Distribution::kSigns) {
    drawn.distribution = Distribution::kUniform01;
    drawn.scale = 1;
    drawn.offset = 0;
  }
  switch (spec.dtype) {
    case DType::kF32:
      return FillAs(drawn, seed, elements, threads, static_cast<float*>(data));
    case DType::kF16:
      return FillAs(drawn, seed, elements, threads, static_cast<Float16*>(data));
    case DType::kBF16:
      return FillAs(drawn, seed, elements, threads, static_cast<BFloat16*>(data));
    case DType::kI64:
      return FillValues(drawn, seed, elements, threads, static_cast<int64_t*>(data));
    case DType::kBool:
      return FillValues(drawn, seed, elements, threads, static_cast<bool*>(data));
    case DType::kI32:
      throw Error(
          ExitCode::kBadRequest,
          "input `" + spec.name + "`: inputs of type " + DTypeName(spec.dtype) + " cannot be drawn yet",
          "use float32, int64 or bool inputs");
  }
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
