// The bodies of LaneKernels. Included by one file per instruction set, which names its namespace in
// LOCKSTEP_LANES_NAMESPACE: nothing here may be shared between them, or the linker would pick an arbitrary copy. For
// the same reason, and for speed, the loops are flattened: the functions of the standard library that they call are
// inlined.
#pragma once

#include "backend/cpu/lanes/norm_lanes.h"
#include "backend/cpu/lanes/pool_lanes.h"
#include "backend/cpu/lanes/winograd_lanes.h"

namespace lockstep::cpu::LOCKSTEP_LANES_NAMESPACE {

// Calls f.operator()<block, flag>().
template <class F>
inline void with_constants(int block, bool flag, const F& f) {
  const auto with_block = [&]<int kBlock>() {
    return flag ? f.template operator()<kBlock, true>() : f.template operator()<kBlock, false>();
  };
  switch (block) {
    case 16:
      return with_block.template operator()<16>();
    case 8:
      return with_block.template operator()<8>();
    default:
      return with_block.template operator()<1>();
  }
}

// For tensors whose values are stored as T.
template <class T>
inline constexpr LaneKernels kKernels{
    .name = LOCKSTEP_LANES_NAME,
    .moments =
        [](const Tile& tile, const void* x, MomentSums& sums) {
          with_constants(tile.block, false,
                         [&]<int kBlock, bool>() { moments<kBlock>(tile, static_cast<const T*>(x), sums); });
        },
    .normalize =
        [](const NormTile& n, void* y) {
          with_constants(n.tile.block, n.relu,
                         [&]<int kBlock, bool kRelu>() { normalize<kBlock, kRelu>(n, static_cast<T*>(y)); });
        },
    .gradient_sums =
        [](const NormTile& n, GradientSums& sums) {
          with_constants(n.tile.block, n.relu,
                         [&]<int kBlock, bool kRelu>() { gradient_sums<T, kBlock, kRelu>(n, sums); });
        },
    .gradient =
        [](const NormTile& n, const NormGradientChannels& channels, void* dx) {
          with_constants(n.tile.block, n.relu,
                         [&]<int kBlock, bool kRelu>() { gradient<kBlock, kRelu>(n, channels, static_cast<T*>(dx)); });
        },
    .average_pool =
        [](const PoolTile& pool, const void* from, void* to) {
          with_constants(pool.block, pool.gradient, [&]<int kBlock, bool kGradient>() {
            if constexpr (kBlock > 1) {
              average_pool<kBlock, kGradient>(pool, static_cast<const T*>(from), static_cast<T*>(to));
            }
          });
        },
    .winograd = {kWinogradMethods<8>, kWinogradMethods<16>}};

inline const LaneKernels& kernels_of(DType stored) {
  return stored == DType::bf16 ? kKernels<Bfloat16> : kKernels<float>;
}

}  // namespace lockstep::cpu::LOCKSTEP_LANES_NAMESPACE
