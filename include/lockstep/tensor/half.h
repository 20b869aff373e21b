// 16-bit floats, for memory and messages: bfloat16 (the upper half of a float) and IEEE half precision.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "lockstep/tensor/tensor.h"

namespace lockstep {

// Rounds to the nearest, ties to even; NaN stays NaN. It has no branches, so that loops over it vectorize.
inline uint16_t to_bf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
  const bool nan = (bits & 0x7fffffff) > 0x7f800000;
  return static_cast<uint16_t>((nan ? bits | 0x400000 : rounded) >> 16);
}

inline float from_bf16(uint16_t x) { return std::bit_cast<float>(uint32_t{x} << 16); }

// The same; magnitudes from 65520 on become infinite, those under 2^-14 keep multiples of 2^-24.
inline uint16_t to_f16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t size = bits & 0x7fffffff, sign = (bits >> 16) & 0x8000;
  const uint32_t normal = (size - (112U << 23) + 0xfff + ((size >> 13) & 1)) >> 13;
  // A float's last place at 0.5 is 2^-24, so the addition rounds correctly.
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(size) + 0.5F) - std::bit_cast<uint32_t>(0.5F);
  const uint32_t finite = size < 0x38800000 ? small : normal;
  const uint32_t special = size > 0x7f800000 ? 0x7e00 : 0x7c00;
  return static_cast<uint16_t>(sign | (size >= 0x477ff000 ? special : finite));
}

inline float from_f16(uint16_t x) {
  const uint32_t size = (uint32_t{x} & 0x7fff) << 13, sign = (uint32_t{x} & 0x8000) << 16;
  const auto finite = std::bit_cast<uint32_t>(std::bit_cast<float>(size) * 0x1p112F);
  const bool special = size >= (0x7c00U << 13);
  return std::bit_cast<float>(sign | (special ? size | 0x7f800000 : finite));
}

// Converts whole ranges of equal length; `type` is bf16 or f16.
void to_half(DType type, std::span<const float> from, std::span<uint16_t> to);
void from_half(DType type, std::span<const uint16_t> from, std::span<float> to);
// sums += values
void add_half(DType type, std::span<const uint16_t> values, std::span<float> sums);

}  // namespace lockstep
