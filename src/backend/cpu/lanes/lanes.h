// Vectors of lanes and how the tiles of a tensor fall into them. Part of lane_body.h: compiled once per instruction
// set, in a namespace of its own.
#pragma once

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

// The channel values for one vector: one channel in each lane, or, in a plain tensor, the same channel in all lanes.
template <class V, int kBlock>
LOCKSTEP_FORMULA V channels_in(const ChannelValues<float>& values) {
  if constexpr (kBlock == 1) {
    return V(values.at[0]);
  } else {
    return load<V>(values.at);
  }
}

// How a tile falls into vectors: `vectors` of V, then `rest` single values (plain tensors only).
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
