// The bodies of LaneKernels. Included by one file per instruction set, which names its namespace in
// LOCKSTEP_LANES_NAMESPACE: nothing here may be shared between them, or the linker would pick an arbitrary copy.
#pragma once

#include "backend/cpu/lanes/norm_lanes.h"
#include "backend/cpu/lanes/pool_lanes.h"

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

inline constexpr LaneKernels kKernels{
    .name = LOCKSTEP_LANES_NAME,
    .moments =
        [](const Tile& tile, const float* x, MomentSums& sums) {
          with_constants(tile.block, false, [&]<int kBlock, bool>() { moments<kBlock>(tile, x, sums); });
        },
    .normalize =
        [](const NormTile& n, float* y) {
          with_constants(n.tile.block, n.relu, [&]<int kBlock, bool kRelu>() { normalize<kBlock, kRelu>(n, y); });
        },
    .gradient_sums =
        [](const NormTile& n, GradientSums& sums) {
          with_constants(n.tile.block, n.relu,
                         [&]<int kBlock, bool kRelu>() { gradient_sums<kBlock, kRelu>(n, sums); });
        },
    .gradient =
        [](const NormTile& n, const NormGradientChannels& channels, float* dx) {
          with_constants(n.tile.block, n.relu,
                         [&]<int kBlock, bool kRelu>() { gradient<kBlock, kRelu>(n, channels, dx); });
        },
    .average_pool =
        [](const PoolTile& pool, const float* from, float* to) {
          with_constants(pool.block, pool.gradient, [&]<int kBlock, bool kGradient>() {
            if constexpr (kBlock > 1) average_pool<kBlock, kGradient>(pool, from, to);
          });
        }};

}  // namespace lockstep::cpu::LOCKSTEP_LANES_NAMESPACE
