// Average pool and its gradient. Part of lane_body.h: compiled once per instruction set, in a namespace of its own.
#pragma once

#include "backend/cpu/lanes/lanes.h"

namespace lockstep::cpu::LOCKSTEP_LANES_NAMESPACE {

template <int kBlock, bool kGradient, class T>
[[gnu::flatten]] void average_pool(const PoolTile& pool, const T* from, T* to) {
  using V = Lanes<kBlock>;
  for (int64_t h = 0; h < pool.h.written; ++h) {
    for (int64_t w = 0; w < pool.w.written; ++w, to += kBlock) {
      V sum(0);
      for (int64_t y = pool.h.begin[h]; y < pool.h.end[h]; ++y) {
        V row(0);
        for (int64_t x = pool.w.begin[w]; x < pool.w.end[w]; ++x) {
          const V value = load<V>(from + (y * pool.w.read + x) * kBlock);
          row += kGradient ? value * V(pool.w.weight[x]) : value;
        }
        sum += kGradient ? row * V(pool.h.weight[y]) : row;
      }
      store(kGradient ? sum : sum * V(pool.h.weight[h] * pool.w.weight[w]), to);
    }
  }
}

}  // namespace lockstep::cpu::LOCKSTEP_LANES_NAMESPACE
