// The tiles into which batch norm divides a tensor, the sums over each, and their combination in the order of the
// samples.
#pragma once

#include <cmath>

#include "backend/cpu/lanes/lane_kernels.h"
#include "backend/cpu/loops.h"

namespace lockstep::cpu {

// The tiles of a tensor: one for each sample and block of channels, block after block, so that most neighbours have the
// same channels.
struct Tiles {
  ChannelLayout layout;
  size_t element_bytes;
  explicit Tiles(const TensorDesc& desc) : layout(desc), element_bytes(dtype_bytes(desc.dtype)) {}

  int64_t count() const { return layout.blocks * layout.samples; }
  int64_t block_of(int64_t tile) const { return tile / layout.samples; }
  int64_t sample_of(int64_t tile) const { return tile % layout.samples; }
  size_t offset_bytes(int64_t tile) const {
    return layout.offset(sample_of(tile), block_of(tile) * layout.block, 0) * element_bytes;
  }
  // The address of a tile in a tensor.
  const void* in(const void* tensor, int64_t tile) const {
    return static_cast<const char*>(tensor) + offset_bytes(tile);
  }
  void* in(void* tensor, int64_t tile) const { return static_cast<char*>(tensor) + offset_bytes(tile); }
  Tile shape() const { return {layout.pixels, static_cast<int>(layout.block)}; }
  double values() const { return static_cast<double>(layout.samples * layout.pixels); }
  int64_t first_channel(int64_t block) const { return block * layout.block; }
  int lanes(int64_t block) const {
    return static_cast<int>(std::min(layout.block, layout.channels - first_channel(block)));
  }
};

// Calls body(tile, channels) for the tiles of a range, where channels = make(block) is computed once for each block.
template <class Make, class Body>
void for_each_tile(const Tiles& tiles, Range range, const Make& make, const Body& body) {
  for (int64_t tile = range.begin; tile < range.end;) {
    const int64_t block = tiles.block_of(tile);
    const int64_t end = std::min(range.end, (block + 1) * tiles.layout.samples);
    const auto channels = make(block);
    for (; tile < end; ++tile) body(tile, channels);
  }
}

// Calls body(range of tiles) in all threads.
template <class Body>
void over_tiles(int threads, const Tiles& tiles, const Body& body) {
  parallel_ranges(threads, tiles.count(), 1, [&](Range range, int) { body(range); });
}

// Two passes over the tiles with a step for each block of channels between them: first(range of tiles), combine(range
// of blocks), second(range of tiles). If whole blocks divide well among the threads, each block goes through all three
// steps, so that the second pass finds the data of the first in the cache.
template <class First, class Combine, class Second>
void in_two_passes(int threads, const Tiles& tiles, const First& first, const Combine& combine, const Second& second) {
  const int64_t blocks = tiles.layout.blocks, samples = tiles.layout.samples;
  if (blocks % threads != 0 && blocks < 4 * int64_t{threads}) {
    over_tiles(threads, tiles, first);
    combine({0, blocks});
    over_tiles(threads, tiles, second);
    return;
  }
  parallel_ranges(threads, blocks, 1, [&](Range range, int) {
    for (int64_t block = range.begin; block < range.end; ++block) {
      const Range of_block{block * samples, (block + 1) * samples};
      first(of_block);
      combine({block, block + 1});
      second(of_block);
    }
  });
}

inline float inverse_deviation(float var, double epsilon) {
  return static_cast<float>(1 / std::sqrt(double{var} + epsilon));
}

struct Parameters {
  const float *scale, *shift, *mean, *var;
  double epsilon;
};

// The values of padding lanes are zero, so these lanes write zeros.
inline NormChannels channels_of(const Tiles& tiles, int64_t block, const Parameters& p) {
  NormChannels channels{};
  for (int i = 0; i < tiles.lanes(block); ++i) {
    const int64_t c = tiles.first_channel(block) + i;
    channels.mean.at[i] = p.mean[c];
    channels.factor.at[i] = p.scale[c] * inverse_deviation(p.var[c], p.epsilon);
    channels.shift.at[i] = p.shift[c];
  }
  return channels;
}

inline void find_moments(const LaneKernels& lanes, const Tiles& tiles, Range range, const void* x, MomentSums* sums) {
  for (int64_t tile = range.begin; tile < range.end; ++tile) {
    lanes.moments(tiles.shape(), tiles.in(x, tile), sums[tile]);
  }
}

inline kernels::Moments<double> moments_of_channel(const Tiles& tiles, const MomentSums* sums, int64_t c) {
  const int64_t first = c / tiles.layout.block * tiles.layout.samples, lane = c % tiles.layout.block;
  kernels::Moments<double> all;
  for (int64_t n = 0; n < tiles.layout.samples; ++n) {
    const MomentSums& of = sums[first + n];
    all.add({static_cast<double>(tiles.layout.pixels), of.mean.at[lane], of.m2.at[lane]});
  }
  return all;
}

inline void combine_moments(const Tiles& tiles, Range blocks, const MomentSums* sums, float* mean, float* var) {
  const auto pixels = static_cast<double>(tiles.layout.pixels);
  for (int64_t block = blocks.begin; block < blocks.end; ++block) {
    MomentSums all = sums[block * tiles.layout.samples];
    for (int64_t n = 1; n < tiles.layout.samples; ++n) {
      const MomentSums& of = sums[block * tiles.layout.samples + n];
      const kernels::MomentShare<double> share(static_cast<double>(n) * pixels, pixels);
      for (int i = 0; i < static_cast<int>(tiles.layout.block); ++i) {
        share.add(of.mean.at[i], of.m2.at[i], all.mean.at[i], all.m2.at[i]);
      }
    }
    for (int i = 0; i < tiles.lanes(block); ++i) {
      mean[tiles.first_channel(block) + i] = static_cast<float>(all.mean.at[i]);
      var[tiles.first_channel(block) + i] = static_cast<float>(all.m2.at[i] / tiles.values());
    }
  }
}

inline void normalize_tiles(const LaneKernels& lanes, Range range, const Tiles& from, const Tiles& to,
                            const Parameters& p, bool relu, const void* x, void* y) {
  for_each_tile(
      from, range, [&](int64_t block) { return channels_of(from, block, p); },
      [&](int64_t tile, const NormChannels& channels) {
        lanes.normalize({.tile = from.shape(), .x = from.in(x, tile), .relu = relu, .channels = channels},
                        to.in(y, tile));
      });
}

// Adds up the tiles' sums and writes dscale and dshift of the whole batch.
inline void combine_gradient_sums(const Tiles& tiles, Range blocks, const GradientSums* sums, const Parameters& p,
                                  float* dscale, float* dshift) {
  for (int64_t block = blocks.begin; block < blocks.end; ++block) {
    GradientSums all = sums[block * tiles.layout.samples];
    for (int64_t n = 1; n < tiles.layout.samples; ++n) {
      const GradientSums& of = sums[block * tiles.layout.samples + n];
      for (int i = 0; i < static_cast<int>(tiles.layout.block); ++i) {
        all.gradient.at[i] += of.gradient.at[i];
        all.product.at[i] += of.product.at[i];
      }
    }
    for (int i = 0; i < tiles.lanes(block); ++i) {
      const int64_t c = tiles.first_channel(block) + i;
      dscale[c] = static_cast<float>(all.product.at[i] * double{inverse_deviation(p.var[c], p.epsilon)});
      dshift[c] = static_cast<float>(all.gradient.at[i]);
    }
  }
}

struct GradientChannels {
  NormChannels norm;
  NormGradientChannels gradient;
};
// `values` is the number of values of a channel over which dscale and dshift were summed.
inline GradientChannels gradient_channels_of(const Tiles& tiles, int64_t block, const Parameters& p, double values,
                                             const float* dscale, const float* dshift) {
  GradientChannels channels{channels_of(tiles, block, p), {}};
  for (int i = 0; i < tiles.lanes(block); ++i) {
    const int64_t c = tiles.first_channel(block) + i;
    const double share = double{channels.norm.factor.at[i]} / values;
    channels.gradient.slope.at[i] =
        static_cast<float>(share * double{inverse_deviation(p.var[c], p.epsilon)} * double{dscale[c]});
    channels.gradient.offset.at[i] = static_cast<float>(share * double{dshift[c]});
  }
  return channels;
}

}  // namespace lockstep::cpu
