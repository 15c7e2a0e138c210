#pragma once
// The floating type of a problem (--precision). All its floating inputs, parameters and outputs have that
// type; integer tensors keep theirs. Inputs are drawn as for float32 and rounded; the fp64 truth is computed
// from the rounded inputs; the reference is eager libtorch in that type. Pure functions.

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "env/problem/problem.h"

namespace kevin {

const char* PrecisionName(Precision precision);  // "fp32", "fp16", "bf16"
// Throws Error(kBadRequest) for any other name.
Precision PrecisionNamed(const std::string& name);
DType DTypeOf(Precision precision);
bool IsFloating(DType dtype);

// The type of the first floating tensor, inputs first; kFp32 where there is none.
Precision PrecisionOf(const Problem& problem);

// The problem with every float32 tensor changed to that type, and with `bytes` and `min_bytes` to match.
// `text` and `content_hash` stay. A problem whose file declares other floating types is returned unchanged.
Problem InPrecision(Problem problem, Precision precision);

// The flags of a problem file that exclude it in this precision (incorrect answers pass its check, or correct
// ones fail): `inadmissible`, at size full `inadmissible-at-full`, in 16 bits `inadmissible-in-16-bits`. Without a
// size: those of any size.
std::vector<const char*> FlagsAgainst(Precision precision, const std::string& size = "");

// The error of rounding to the type: at most Roundoff times the value, and at most half of SmallestStep for
// values too small for that. 0 for integers; SmallestStep is 0 for float32 too, whose results are not rounded
// separately.
double Roundoff(DType dtype);
double SmallestStep(DType dtype);
double LargestFinite(DType dtype);

// The 16-bit floating types as their bits: IEEE binary16 ("fp16") and the upper half of a float ("bf16").
// Round rounds to nearest, ties to even; values that are too large become infinite. Branch-free, so that
// loops are vectorised. Distinct types, because tensors of one must not be read as the other.
struct Float16 {
  uint16_t bits = 0;
};
struct BFloat16 {
  uint16_t bits = 0;
};

inline float ToFloat(float value) { return value; }

inline float ToFloat(BFloat16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }

inline float ToFloat(Float16 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000U) << 16, magnitude = value.bits & 0x7fffU;
  const uint32_t normal =
      (magnitude << 13) + (112U << 23) + (magnitude >= 0x7c00U ? (112U << 23) : 0U);  // 255 - 31 is twice 112
  const uint32_t subnormal = std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-24F);
  return std::bit_cast<float>(sign | (magnitude < 0x400U ? subnormal : normal));
}

inline void Round(float value, float* to) { *to = value; }

inline void Round(float value, BFloat16* to) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16, nan = (bits >> 16) | 0x40U;
  to->bits = static_cast<uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? nan : rounded);
}

inline void Round(float value, Float16* to) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7fffffffU;
  const uint32_t normal = (magnitude - (112U << 23) + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
  // Adding 0.5 shifts the remaining digits into the last bits and rounds.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - std::bit_cast<uint32_t>(0.5F);
  uint32_t result = magnitude < (113U << 23) ? subnormal : normal;
  result = magnitude >= 0x477ff000U ? 0x7c00U : result;  // 65520 and more
  result = magnitude > 0x7f800000U ? 0x7e00U : result;   // the payload of a NaN is lost
  to->bits = static_cast<uint16_t>(sign | result);
}

}  // namespace kevin
