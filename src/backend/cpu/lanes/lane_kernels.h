// Our own inner loops with explicit vector lanes, compiled once per instruction set and chosen when the backend is
// made. Each works on one tile of a tensor: a block of channels of one sample (`block` channels side by side, pixel
// after pixel), or one channel of a plain tensor (block 1). Values are stored as float32 or bfloat16; computations use
// float32.
#pragma once

#include <cstdint>
#include <span>
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

// Winograd's method (winograd_lanes.h), for float32 tensors in blocks of 8 or 16 channels, divided into tiles of
// outputs. The window of a tile is these outputs, or the inputs that they depend on.
struct WinogradImages {
  int64_t h = 0, w = 0, blocks = 0;  // of the tensor
  int64_t pad_h = 0, pad_w = 0;      // zeros above and to the left of the first window
  int64_t tiles_h = 0, tiles_w = 0;  // of one image
};
// `count` tiles of all images from `first` at the points: [point][block of channels][tile][channel], with room for
// `capacity` tiles and `point_stride` elements from point to point.
struct WinogradTiles {
  int64_t first = 0, count = 0, capacity = 0, point_stride = 0;
};
// Plain weights [O,I,kh,kw] as a matrix, whose rows are summed over, and one block of its columns at the points:
// [point][row][column], padded with zeros to whole blocks.
struct WinogradWeights {
  int64_t rows = 0, columns = 0;
  int64_t row_stride = 0, column_stride = 0;  // elements of the plain tensor
  bool rotated = false;                       // by 180 degrees, for the gradient of the input
  int64_t point_stride = 0;                   // elements
};
struct WeightBlock {
  int64_t row = 0, column = 0;
};
// The products at one point: of tiles of `blocks` blocks of channels with `columns` blocks of weights or of a gradient.
struct WinogradProduct {
  int64_t tiles = 0, blocks = 0, columns = 0;
  int64_t tiles_stride = 0, columns_stride = 0, sums_stride = 0;  // elements from block to block
};
struct WinogradLanes {
  int taps_h, taps_w;  // of the kernel
  int tile_h, tile_w;  // outputs
  int points;
  using ToPoints = void (*)(const WinogradImages& images, const WinogradTiles& tiles, const float* from, float* points);
  ToPoints input, output_gradient;
  // To block `block` of the images; `bias` of that block, or null.
  void (*output)(const WinogradImages& images, const WinogradTiles& tiles, const float* points, const float* bias,
                 int64_t block, float* to);
  void (*weights)(const WinogradWeights& weights, const WeightBlock& block, const float* from, float* points);
  void (*weights_gradient)(const WinogradWeights& weights, const WeightBlock& block, const float* points, float* to);
  // sums = tiles x weights over channels; sums[I][O] += tiles x gradient over tiles.
  using Product = void (*)(const WinogradProduct& p, const float* tiles, const float* columns, float* sums);
  Product multiply, accumulate;
};

// All tensors of a call have the element type for which the kernels were asked.
struct LaneKernels {
  std::string_view name;  // "lanes:avx512"
  void (*moments)(const Tile& tile, const void* x, MomentSums& sums);
  void (*normalize)(const NormTile& norm, void* y);  // y may be x
  void (*gradient_sums)(const NormTile& norm, GradientSums& sums);
  void (*gradient)(const NormTile& norm, const NormGradientChannels& gradient, void* dx);  // dx may be dy
  void (*average_pool)(const PoolTile& pool, const void* from, void* to);
  std::span<const WinogradLanes> winograd[2];  // each for another kernel; for blocks of 8 and of 16
};

// Returns the best kernels for the instructions that oneDNN may use here: ONEDNN_MAX_CPU_ISA limits both. `stored` is
// f32 or bf16.
const LaneKernels& lane_kernels(DType stored);

const LaneKernels& baseline_lane_kernels(DType stored);
#if defined(__x86_64__)
const LaneKernels& avx2_lane_kernels(DType stored);
const LaneKernels& avx512_lane_kernels(DType stored);
#endif

}  // namespace lockstep::cpu
