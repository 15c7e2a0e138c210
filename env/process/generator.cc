#include "env/process/generator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

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

// By how much rows are shifted: word number r of a keystream of its own decides on row r. Nonces of tensors lie below it.
constexpr uint64_t kNonceOfRows = uint64_t{1} << 63;

class RowShifts {
 public:
  RowShifts(const ValueStream& stream, float shift) : stream_(stream), shift_(shift) {}
  float Of(int64_t row) {
    if (row / kGroupWords != group_) {
      group_ = row / kGroupWords;
      MakeKeystreamGroup(stream_.key, stream_.nonce | kNonceOfRows, group_, words_.data());
    }
    const uint64_t third = uint64_t{words_[static_cast<size_t>(row % kGroupWords)]} * 3 >> 32;
    return (static_cast<float>(third) - 1) * shift_;
  }

 private:
  ValueStream stream_;
  float shift_;
  int64_t group_ = -1;
  alignas(64) std::array<uint32_t, kGroupWords> words_{};
};

template <typename Value, typename Draw>
void FillShifted(const ValueStream& stream, int64_t elements, int threads, float scale, float offset,
                 float row_shift, int64_t row_elements, Value* out, const Draw& draw) {
  static_assert(kGrain % kGroupWords == 0);
  ParallelFor(elements, kGrain, threads, [&](int64_t begin, int64_t end) {
    alignas(64) uint32_t words[kGroupWords];
    RowShifts shifts(stream, row_shift);
    while (begin < end) {
      MakeKeystreamGroup(stream.key, stream.nonce, begin / kGroupWords, words);
      const int64_t group = begin, group_end = std::min(end, begin + kGroupWords);
      while (begin < group_end) {
        const int64_t row = begin / row_elements, row_end = std::min(group_end, (row + 1) * row_elements);
        const float moved = offset + shifts.Of(row);
        for (; begin < row_end; ++begin)
          Store(std::fma(draw(words[begin - group]), scale, moved), scale + moved, out + begin);
      }
    }
  });
}

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
  const auto bell_shaped = [](uint32_t bits) { return BellShaped(bits); };
  switch (Resolve(spec, stream.member, &scale)) {
    case Distribution::kMixture:
    case Distribution::kNormal:
      if (spec.row_shift != 0 && stream.member % kMixtureMembers == kLarge) {
        return FillShifted(stream, elements, threads, scale, offset, static_cast<float>(spec.row_shift),
                           spec.row_elements, out, bell_shaped);
      }
      return fill(bell_shaped);
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
    drawn.row_shift = 0;
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

int MixtureOrder::Next(SecretRandom& random) {
  if (left_ == 0) {
    std::iota(order_.begin(), order_.end(), 0);
    std::shuffle(order_.begin(), order_.end(), random);
    left_ = order_.size();
  }
  return order_[--left_];
}

const char* MixtureMemberName(int member) {
  static constexpr const char* kNames[kMixtureMembers] = {"normal", "uniform", "heavy-tailed", "normal x8"};
  return kNames[member];
}

namespace {

constexpr int64_t kElementsPerChange = 256;

int64_t UpTo(int64_t last, SecretRandom& random) {
  return std::uniform_int_distribution<int64_t>(0, last)(random);
}

// A random element on or above the diagonal: (row, column) with row <= column.
std::pair<int64_t, int64_t> AboveDiagonal(int64_t rows, SecretRandom& random) {
  const int64_t one = UpTo(rows - 1, random), other = UpTo(rows - 1, random);
  return {std::min(one, other), std::max(one, other)};
}

void RearrangeMatrix(Structure structure, int64_t rows, int64_t bytes, int64_t changes, SecretRandom& random,
                     std::byte* matrix) {
  const auto place = [&](int64_t row, int64_t column) { return matrix + (row * rows + column) * bytes; };
  for (int64_t change = 0; change < changes; ++change) {
    const auto from = AboveDiagonal(rows, random), to = AboveDiagonal(rows, random);
    const bool is_lower = structure == Structure::kLower;
    const std::byte* source = is_lower ? place(from.second, from.first) : place(from.first, from.second);
    if (structure != Structure::kLower)
      std::memmove(place(to.first, to.second), source, static_cast<size_t>(bytes));
    if (structure != Structure::kUpper)
      std::memmove(place(to.second, to.first), source, static_cast<size_t>(bytes));
  }
}

}  // namespace

void Rearrange(const TensorSpec& spec, int64_t elements, SecretRandom& random, void* data) {
  if (elements < 2) return;
  auto* bytes_of = static_cast<std::byte*>(data);
  const int64_t bytes = DTypeBytes(spec.dtype);
  const int64_t changes = (elements + kElementsPerChange - 1) / kElementsPerChange;
  if (spec.structure != Structure::kNone) {
    const auto rows = std::llround(std::sqrt(static_cast<double>(elements)));
    return RearrangeMatrix(spec.structure, rows, bytes, changes, random, bytes_of);
  }
  for (int64_t change = 0; change < changes; ++change) {
    const int64_t from = UpTo(elements - 1, random);
    const int64_t to = (from + 1 + UpTo(elements - 2, random)) % elements;
    std::memcpy(bytes_of + to * bytes, bytes_of + from * bytes, static_cast<size_t>(bytes));
  }
}

}  // namespace kevin
