#include "env/process/generator.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>

#include "env/error.h"
#include "env/problem/precision.h"
#include "env/process/machine.h"

namespace kevin {
namespace {

constexpr int64_t kGrain = 1 << 16;

inline float SignedUnit(uint32_t bits) { return static_cast<float>(static_cast<int32_t>(bits)) * 0x1p-31F; }
inline float Unit(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24F; }

// Zero mean, variance 1: the sum of three uniforms. The second and third are the bits of the first times odd
// numbers, independent enough for a sum and three times as fast. The mantissas have 24 bits, so that rounding
// to a shorter type changes the value.
inline float BellShaped(uint32_t bits) {
  return SignedUnit(bits) + SignedUnit(bits * 0x2c1b3c6dU) + SignedUnit(bits * 0x297a2d39U);
}

// At most +-33, mostly within +-2.
inline float HeavyTailed(uint32_t bits) { return SignedUnit(bits) / (0.03F + Unit(bits * 0x2c1b3c6dU)); }

// Converts a drawn value to the type of the tensor. Rounding may raise the largest value of [0, 1) * scale to
// `scale`.
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
void Fill(const ValueStream& stream, int64_t elements, int threads, float scale, float offset, Value* out,
          const Draw& draw) {
  static_assert(kGrain % kGroupWords == 0);
  ParallelFor(elements, kGrain, threads, [&](int64_t begin, int64_t end) {
    alignas(64) uint32_t words[kGroupWords];
    const auto store = [&](Value* place, int64_t i) {
      Store(std::fma(draw(words[i]), scale, offset), scale + offset, place + i);
    };
    for (; begin < end; begin += kGroupWords) {
      MakeKeystreamGroup(stream.key, stream.nonce, begin / kGroupWords, words);
      Value* place = out + begin;
      if (end - begin >= kGroupWords) {
        for (int64_t i = 0; i < kGroupWords; ++i) store(place, i);
      } else {
        for (int64_t i = 0; i < end - begin; ++i) store(place, i);
      }
    }
  });
}

enum Member { kBell, kUniform, kHeavy, kLarge };

Distribution Resolve(const TensorSpec& spec, int member, float* scale) {
  if (spec.distribution != Distribution::kMixture) return spec.distribution;
  switch (static_cast<Member>(member % kMixtureMembers)) {
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
void FillValues(const TensorSpec& spec, const ValueStream& stream, int64_t elements, int threads,
                Value* out) {
  auto scale = static_cast<float>(spec.scale);
  const auto offset = static_cast<float>(spec.offset);
  const auto fill = [&](const auto& draw) { Fill(stream, elements, threads, scale, offset, out, draw); };
  switch (Resolve(spec, stream.member, &scale)) {
    case Distribution::kMixture:
    case Distribution::kNormal:
      return fill([](uint32_t bits) { return BellShaped(bits); });
    case Distribution::kUniform:
      return fill([](uint32_t bits) { return SignedUnit(bits); });
    case Distribution::kUniform01:
      return fill([](uint32_t bits) { return Unit(bits); });
    case Distribution::kHeavyTailed:
      return fill([](uint32_t bits) { return HeavyTailed(bits); });
    case Distribution::kPositive:
      return fill([](uint32_t bits) { return 0.01F + Unit(bits); });
    case Distribution::kStored:  // copied by FillTensor
      return;
    case Distribution::kSigns:
      return fill([](uint32_t bits) { return (bits >> 31) != 0 ? 1.0F : -1.0F; });
  }
}

template <typename Value>
void Impose(Structure structure, int64_t rows, int threads, Value* matrix) {
  ParallelFor(rows, std::max<int64_t>(1, kGrain / rows), threads, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      Value* line = matrix + row * rows;
      if (structure == Structure::kUpper) std::fill(line, line + row, Value{});
      if (structure == Structure::kLower) std::fill(line + row + 1, line + rows, Value{});
      // The upper half is only read.
      for (int64_t i = 0; structure == Structure::kSymmetric && i < row; ++i)
        line[i] = matrix[i * rows + row];
    }
  });
}

template <typename Value>
void FillAs(const TensorSpec& spec, const ValueStream& stream, int64_t elements, int threads, Value* out) {
  FillValues(spec, stream, elements, threads, out);
  if (spec.structure == Structure::kNone) return;
  Impose(spec.structure, std::llround(std::sqrt(static_cast<double>(elements))), threads, out);
}

}  // namespace

void FillTensor(const TensorSpec& spec, InputMode mode, const ValueStream& stream, int64_t elements,
                int threads, void* data) {
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
      return FillAs(drawn, stream, elements, threads, static_cast<float*>(data));
    case DType::kF16:
      return FillAs(drawn, stream, elements, threads, static_cast<Float16*>(data));
    case DType::kBF16:
      return FillAs(drawn, stream, elements, threads, static_cast<BFloat16*>(data));
    case DType::kI64:
      return FillValues(drawn, stream, elements, threads, static_cast<int64_t*>(data));
    case DType::kBool:
      return FillValues(drawn, stream, elements, threads, static_cast<bool*>(data));
    case DType::kI32:
      throw Error(ExitCode::kBadRequest,
                  "input `" + spec.name + "`: inputs of type " + DTypeName(spec.dtype) + " cannot be drawn",
                  "use float32, int64 or bool inputs");
  }
}

const char* MixtureMemberName(int member) {
  static constexpr const char* kNames[kMixtureMembers] = {"normal", "uniform", "heavy-tailed", "normal x8"};
  return kNames[member];
}

void FillPoison(void* data, int64_t bytes, int threads) {
  auto* words = static_cast<uint32_t*>(data);
  ParallelFor(bytes / 4, kGrain, threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) words[i] = kPoison;
  });
}

namespace {

constexpr int64_t kBlocks = 4;
constexpr int64_t kBlockElements = 2048;

int64_t UpTo(int64_t last, SecretRandom& random) {
  return std::uniform_int_distribution<int64_t>(0, last)(random);
}

// Copies parts of rows inside one quarter of the matrix, which lies on one side of the diagonal.
void RearrangeRows(Structure structure, int64_t rows, int64_t bytes, SecretRandom& random,
                   std::byte* matrix) {
  const int64_t half = rows / 2, length = std::min(half, kBlockElements);
  if (length < 1) return;
  const bool is_upper = structure == Structure::kUpper;
  const int64_t first_row = is_upper ? 0 : rows - half, first_column = is_upper ? rows - half : 0;
  const auto place = [&](int64_t row, int64_t column) { return matrix + (row * rows + column) * bytes; };
  const int64_t parts = std::min(kBlocks * kBlockElements / length, half);
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t from = first_row + UpTo(half - 1, random), to = first_row + UpTo(half - 1, random);
    const int64_t column = first_column + UpTo(half - length, random);
    std::memmove(place(to, column), place(from, column), static_cast<size_t>(length * bytes));
    for (int64_t i = 0; structure == Structure::kSymmetric && i < length; ++i)
      std::memcpy(place(column + i, to), place(to, column + i), static_cast<size_t>(bytes));
  }
}

}  // namespace

void Rearrange(const TensorSpec& spec, int64_t elements, SecretRandom& random, void* data) {
  auto* bytes_of = static_cast<std::byte*>(data);
  const int64_t bytes = DTypeBytes(spec.dtype);
  if (spec.structure != Structure::kNone) {
    const auto rows = std::llround(std::sqrt(static_cast<double>(elements)));
    return RearrangeRows(spec.structure, rows, bytes, random, bytes_of);
  }
  const int64_t length = std::min(kBlockElements, elements / (4 * kBlocks));
  for (int64_t block = 0; length > 0 && block < kBlocks; ++block) {
    std::memmove(bytes_of + UpTo(elements - length, random) * bytes,
                 bytes_of + UpTo(elements - length, random) * bytes, static_cast<size_t>(length * bytes));
  }
}

}  // namespace kevin
