// Our own inner loops with explicit vector lanes, compiled once per instruction set and chosen when the backend is
// made. Each works on one tile of a tensor: a block of channels of one sample (`block` channels side by side, pixel
// after pixel), or one channel of a plain tensor (block 1). Values are stored as float32 or bfloat16 and computed
// with in float32.
#pragma once

#include <cstdint>
#include <string_view>

#include "backend/kernels/functors.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::cpu {

inline constexpr int kMaxBlock = 16;  // blocks hold 1, 8 or 16 channels

// A value for each channel of a block.
template <class T>
struct alignas(64) ChannelValues {
  T at[kMaxBlock];
};

struct Tile {
  int64_t pixels = 0;
  int block = 1;
};

struct NormChannels {
  ChannelValues<float> mean, factor, shift;
};
struct NormGradientChannels {
  ChannelValues<float> slope, offset;
};

// Sums of one tile, channel by channel.
struct MomentSums {
  ChannelValues<double> mean, m2;  // m2: sum of the squared distances from the mean
};
struct GradientSums {
  ChannelValues<double> gradient;  // of g
  ChannelValues<double> product;   // of g (x - mean)
};

struct NormTile {
  Tile tile;
  const void* x = nullptr;
  const void* dy = nullptr;  // gradients only
  bool relu = false;
  const NormChannels& channels;
};

// One axis of a pool: each position that is written sums the positions [begin, end) that are read. `weight` is the
// reciprocal of a window's size: of the position written or, in the gradient, of the position read.
struct PoolAxis {
  const int32_t* begin = nullptr;
  const int32_t* end = nullptr;
  const float* weight = nullptr;
  int64_t written = 0, read = 0;  // positions
};
struct PoolTile {
  int block = kMaxBlock;  // 8 or 16
  PoolAxis h, w;
  bool gradient = false;
};

// All tensors of a call have the element type for which the kernels were asked.
struct LaneKernels {
  std::string_view name;  // "lanes:avx512"
  void (*moments)(const Tile& tile, const void* x, MomentSums& sums);
  void (*normalize)(const NormTile& norm, void* y);  // y may be x
  void (*gradient_sums)(const NormTile& norm, GradientSums& sums);
  void (*gradient)(const NormTile& norm, const NormGradientChannels& gradient, void* dx);  // dx may be dy
  void (*average_pool)(const PoolTile& pool, const void* from, void* to);
};

// The best for the instructions that oneDNN may use here: ONEDNN_MAX_CPU_ISA limits both. `stored` is f32 or bf16.
const LaneKernels& lane_kernels(DType stored);

const LaneKernels& baseline_lane_kernels(DType stored);
#if defined(__x86_64__)
const LaneKernels& avx2_lane_kernels(DType stored);
const LaneKernels& avx512_lane_kernels(DType stored);
#endif

}  // namespace lockstep::cpu
