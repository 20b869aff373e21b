// Vectors of lanes, and how they divide the tiles of a tensor. Part of lane_body.h: compiled once per instruction set,
// in a namespace of its own.
#pragma once

#include <cstdint>
#include <experimental/simd>

#include "backend/cpu/lanes/lane_kernels.h"

namespace lockstep {
namespace stdx = std::experimental;

namespace kernels {
template <class T, class Abi>
struct LaneFunctions<stdx::simd<T, Abi>> {
  using V = stdx::simd<T, Abi>;
  LOCKSTEP_FORMULA static V select(const typename V::mask_type& condition, V yes, V no) {
    stdx::where(condition, no) = yes;
    return no;
  }
};
}  // namespace kernels

namespace cpu::LOCKSTEP_LANES_NAMESPACE {

template <int kLanes>
using Lanes = stdx::simd<float, stdx::simd_abi::deduce_t<float, kLanes>>;

template <class V>
constexpr int kWidth = static_cast<int>(V::size());
template <>
inline constexpr int kWidth<float> = 1;

// How tensors store bfloat16, the upper half of a float: a type of its own, so that load() and store() know it.
struct Bfloat16 {
  uint16_t bits;
};

template <class V>
LOCKSTEP_FORMULA V load(const float* from) {
  if constexpr (kWidth<V> == 1) {
    return *from;
  } else {
    return V(from, stdx::element_aligned);
  }
}
template <class V>
LOCKSTEP_FORMULA void store(V value, float* to) {
  if constexpr (kWidth<V> == 1) {
    *to = value;
  } else {
    value.copy_to(to, stdx::element_aligned);
  }
}

// The bits of V's lanes.
template <class V>
struct BitsOf {
  using type = stdx::rebind_simd_t<uint32_t, V>;
};
template <>
struct BitsOf<float> {
  using type = uint32_t;
};

// std::bit_cast is not allowed, because wide vectors of the standard library are not trivially copyable.
template <class To, class From>
LOCKSTEP_FORMULA To same_bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(static_cast<void*>(&to), &from, sizeof(To));
  return to;
}

template <class V>
LOCKSTEP_FORMULA V load(const Bfloat16* from) {
  using Bits = typename BitsOf<V>::type;
  if constexpr (kWidth<V> == 1) {
    return same_bits<V>(Bits{from->bits} << 16);
  } else {
    return same_bits<V>(Bits(&from->bits, stdx::element_aligned) << 16);
  }
}
// Rounds as to_bf16() does: to the nearest, ties to even; NaN stays NaN.
template <class V>
LOCKSTEP_FORMULA void store(V value, Bfloat16* to) {
  using Bits = typename BitsOf<V>::type;
  const Bits bits = same_bits<Bits>(value);
  const Bits rounded = bits + 0x7fff + ((bits >> 16) & 1);
  if constexpr (kWidth<V> == 1) {
    to->bits = static_cast<uint16_t>((value != value ? bits | 0x400000 : rounded) >> 16);
  } else {
    Bits kept = rounded;
    stdx::where((bits & 0x7fffffff) > 0x7f800000, kept) = bits | 0x400000;
    (kept >> 16).copy_to(&to->bits, stdx::element_aligned);
  }
}

// The channel values for one vector: one channel in each lane, or, in a plain tensor, the same channel in all lanes.
template <class V, int kBlock>
LOCKSTEP_FORMULA V channels_in(const ChannelValues<float>& values) {
  if constexpr (kBlock == 1) {
    return V(values.at[0]);
  } else {
    return load<V>(values.at);
  }
}

// The division of a tile: `vectors` of V, then `rest` single values (plain tensors only).
template <int kBlock>
struct Shape {
  using V = Lanes<kBlock == 1 ? 16 : kBlock>;
  static constexpr int64_t kStep = kWidth<V>;
  int64_t vectors, rest;
  explicit Shape(const Tile& tile) : vectors(tile.pixels * kBlock / kStep), rest(tile.pixels * kBlock % kStep) {}
};

// The sum of f(index of a vector) over [begin, end), in four independent chains of additions.
template <class V, class F>
LOCKSTEP_FORMULA V sum_over(int64_t begin, int64_t end, const F& f) {
  V a(0), b(0), c(0), d(0);
  int64_t i = begin;
  for (; i + 4 <= end; i += 4) {
    a += f(i);
    b += f(i + 1);
    c += f(i + 2);
    d += f(i + 3);
  }
  for (; i < end; ++i) a += f(i);
  return (a + b) + (c + d);
}

}  // namespace cpu::LOCKSTEP_LANES_NAMESPACE
}  // namespace lockstep
