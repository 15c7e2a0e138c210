#pragma once
// The 16-bit floating types as their bits: IEEE binary16 ("fp16") and the upper half of a float ("bf16").
// Rounding is to nearest, ties to even; what is too large becomes infinite. Branch-free, so that loops over
// them vectorise. Pure.

#include <bit>
#include <cstdint>

namespace kevin {

// Types of their own, so that a tensor of one is not taken for a tensor of the other.
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
  // Adding 0.5 moves the places that are left into the last bits, and rounds on the way.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - std::bit_cast<uint32_t>(0.5F);
  uint32_t result = magnitude < (113U << 23) ? subnormal : normal;
  result = magnitude >= 0x477ff000U ? 0x7c00U : result;  // 65520 and more
  result = magnitude > 0x7f800000U ? 0x7e00U : result;   // a NaN's other bits are not kept
  to->bits = static_cast<uint16_t>(sign | result);
}

}  // namespace kevin
