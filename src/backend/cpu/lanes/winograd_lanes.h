// Winograd's method: tensors to points, the products at each point, and back. Part of lane_body.h: compiled once per
// instruction set, in a namespace of its own.
#pragma once

#include "backend/cpu/lanes/winograd_directions.h"

namespace lockstep::cpu::LOCKSTEP_LANES_NAMESPACE {

// load(y, x) returns a vector, store(y, x, vector) writes one.
template <class AlongY, class AlongX, class V, class Load, class Store>
LOCKSTEP_FORMULA void transform(const Load& load, const Store& store) {
  V half[AlongY::kTo][AlongX::kFrom];
  for (int x = 0; x < AlongX::kFrom; ++x) {
    V column[AlongY::kFrom], result[AlongY::kTo];
    for (int y = 0; y < AlongY::kFrom; ++y) column[y] = load(y, x);
    AlongY::template apply<V>(column, result);
    for (int y = 0; y < AlongY::kTo; ++y) half[y][x] = result[y];
  }
  for (int y = 0; y < AlongY::kTo; ++y) {
    V result[AlongX::kTo];
    AlongX::template apply<V>(half[y], result);
    for (int x = 0; x < AlongX::kTo; ++x) store(y, x, result[x]);
  }
}

// The image, row and column of a tile.
struct TilePosition {
  int64_t n, y, x;
};
template <class M>
LOCKSTEP_FORMULA TilePosition position_of(const WinogradImages& images, int64_t tile) {
  return {tile / (images.tiles_h * images.tiles_w), tile / images.tiles_w % images.tiles_h * M::Y::kTile - images.pad_h,
          tile % images.tiles_w * M::X::kTile - images.pad_w};
}

template <class M, class AlongY, class AlongX, int kBlock>
[[gnu::flatten]] void images_to_points(const WinogradImages& images, const WinogradTiles& tiles, const float* from,
                                       float* points) {
  using V = Lanes<kBlock>;
  for (int64_t block = 0; block < images.blocks; ++block) {
    for (int64_t t = 0; t < tiles.count; ++t) {
      const TilePosition at = position_of<M>(images, tiles.first + t);
      const float* plane = from + (at.n * images.blocks + block) * images.h * images.w * kBlock;
      float* to = points + (block * tiles.capacity + t) * kBlock;
      const auto put = [&](int y, int x, const V& value) {
        store(value, to + (y * M::X::kPoints + x) * tiles.point_stride);
      };
      if (at.y >= 0 && at.x >= 0 && at.y + AlongY::kFrom <= images.h && at.x + AlongX::kFrom <= images.w) {
        const float* corner = plane + (at.y * images.w + at.x) * kBlock;
        transform<AlongY, AlongX, V>([&](int y, int x) { return load<V>(corner + (y * images.w + x) * kBlock); }, put);
      } else {
        transform<AlongY, AlongX, V>(
            [&](int y, int x) {
              const int64_t row = at.y + y, column = at.x + x;
              const bool inside = row >= 0 && row < images.h && column >= 0 && column < images.w;
              return inside ? load<V>(plane + (row * images.w + column) * kBlock) : V(0);
            },
            put);
      }
    }
  }
}

template <class M, int kBlock>
[[gnu::flatten]] void points_to_images(const WinogradImages& images, const WinogradTiles& tiles, const float* points,
                                       const float* bias, int64_t block, float* to) {
  using V = Lanes<kBlock>;
  const V shift = bias == nullptr ? V(0) : load<V>(bias);
  for (int64_t t = 0; t < tiles.count; ++t) {
    const TilePosition at = position_of<M>(images, tiles.first + t);
    float* corner = to + (((at.n * images.blocks + block) * images.h + at.y) * images.w + at.x) * kBlock;
    const int64_t rows = images.h - at.y, columns = images.w - at.x;
    transform<typename M::Y::Output, typename M::X::Output, V>(
        [&](int y, int x) { return load<V>(points + (y * M::X::kPoints + x) * tiles.point_stride + t * kBlock); },
        [&](int y, int x, const V& value) {
          if (y < rows && x < columns) store(value + shift, corner + (y * images.w + x) * kBlock);
        });
  }
}

// Calls f(row, column, offset of its taps) for each weight of a block of rows and one of columns.
template <int kBlock, class F>
LOCKSTEP_FORMULA void for_each_weight(const WinogradWeights& w, const WeightBlock& block, const F& f) {
  const int64_t first_row = block.row * kBlock, first_column = block.column * kBlock;
  const int64_t rows = w.rows - first_row < kBlock ? w.rows - first_row : kBlock;
  const int64_t columns = w.columns - first_column < kBlock ? w.columns - first_column : kBlock;
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) {
      f(r, c, (first_row + r) * w.row_stride + (first_column + c) * w.column_stride);
    }
  }
}

template <class M, int kBlock>
[[gnu::flatten]] void weights_to_points(const WinogradWeights& w, const WeightBlock& block, const float* from,
                                        float* points) {
  using V = Lanes<kBlock>;
  alignas(64) float packed[kBlock][M::kTaps][kBlock] = {};
  for_each_weight<kBlock>(w, block, [&](int64_t r, int64_t c, int64_t offset) {
    const float* g = from + offset;
    if (w.rotated) {
      for (int i = 0; i < M::kTaps; ++i) packed[r][i][c] = g[M::kTaps - 1 - i];
    } else {
      for (int i = 0; i < M::kTaps; ++i) packed[r][i][c] = g[i];
    }
  });
  float* to = points + block.row * kBlock * kBlock;
  for (int r = 0; r < kBlock; ++r, to += kBlock) {
    transform<typename M::Y::Weights, typename M::X::Weights, V>(
        [&](int y, int x) { return load<V>(packed[r][y * M::X::kTaps + x]); },
        [&](int y, int x, const V& v) { store(v, to + (y * M::X::kPoints + x) * w.point_stride); });
  }
}

// The transpose of weights_to_points().
template <class M, int kBlock>
[[gnu::flatten]] void points_to_weights(const WinogradWeights& w, const WeightBlock& block, const float* points,
                                        float* to) {
  using V = Lanes<kBlock>;
  alignas(64) float packed[kBlock][M::kTaps][kBlock];
  const float* from = points + block.row * kBlock * kBlock;
  for (int r = 0; r < kBlock; ++r, from += kBlock) {
    transform<typename M::Y::WeightsGradient, typename M::X::WeightsGradient, V>(
        [&](int y, int x) { return load<V>(from + (y * M::X::kPoints + x) * w.point_stride); },
        [&](int y, int x, const V& v) { store(v, packed[r][y * M::X::kTaps + x]); });
  }
  for_each_weight<kBlock>(w, block, [&](int64_t r, int64_t c, int64_t offset) {
    for (int i = 0; i < M::kTaps; ++i) to[offset + i] = packed[r][i][c];
  });
}

// The vectors of sums that fit the registers: rows (of tiles, or of channels of an image) x columns.
#if defined(__AVX512F__)
constexpr int kTileRows = 12, kGradientRows = 8, kColumns = 2;
#elif defined(__AVX2__)
constexpr int kTileRows = 6, kGradientRows = 4, kColumns = 2;
#else
constexpr int kTileRows = 4, kGradientRows = 4, kColumns = 1;
#endif

// Sums are made of pieces of this many terms, which keeps the rounding error of long sums small.
constexpr int64_t kTerms = 64;

// kRows x kCount vectors of sums. Each term is a product of one of kRows values, kStride apart, with one of kCount
// vectors.
template <int kBlock, int kRows, int kStride, int kCount>
struct PieceOfSums {
  using V = Lanes<kBlock>;
  V at[kRows][kCount];

  LOCKSTEP_FORMULA PieceOfSums() {
    for (auto& row : at) {
      for (V& sum : row) sum = V(0);
    }
  }
  LOCKSTEP_FORMULA void add(const float* values, const float* vectors, int64_t vectors_stride) {
    V factor[kCount];
    for (int k = 0; k < kCount; ++k) factor[k] = load<V>(vectors + k * vectors_stride);
    for (int r = 0; r < kRows; ++r) {
      const V value(values[r * kStride]);
      for (int k = 0; k < kCount; ++k) at[r][k] += value * factor[k];
    }
  }
  LOCKSTEP_FORMULA void end(bool first, float* sums, int64_t sums_stride) const {
    for (int r = 0; r < kRows; ++r) {
      for (int k = 0; k < kCount; ++k) {
        float* const to = sums + k * sums_stride + r * kBlock;
        store(first ? at[r][k] : at[r][k] + load<V>(to), to);
      }
    }
  }
};

template <int kBlock, int kRows, int kCount>
LOCKSTEP_FORMULA void multiply_rows(const WinogradProduct& p, const float* tiles, const float* weights, float* sums) {
  constexpr int64_t kBlocks = kTerms / kBlock;
  for (int64_t first = 0; first < p.blocks; first += kBlocks) {
    const int64_t blocks = p.blocks - first < kBlocks ? p.blocks - first : kBlocks;
    PieceOfSums<kBlock, kRows, kBlock, kCount> piece;
    for (int64_t block = 0; block < blocks; ++block, tiles += p.tiles_stride, weights += kBlock * kBlock) {
#pragma GCC unroll 4
      for (int c = 0; c < kBlock; ++c) piece.add(tiles + c, weights + c * kBlock, p.columns_stride);
    }
    piece.end(first == 0, sums, p.sums_stride);
  }
}

template <int kBlock, int kRows, int kCount>
LOCKSTEP_FORMULA void multiply_from(const WinogradProduct& p, int64_t row, const float* tiles, const float* weights,
                                    float* sums) {
  for (; row + kRows <= p.tiles; row += kRows) {
    multiply_rows<kBlock, kRows, kCount>(p, tiles + row * kBlock, weights, sums + row * kBlock);
  }
  if constexpr (kRows > 1) multiply_from<kBlock, kRows / 2, kCount>(p, row, tiles, weights, sums);
}

template <int kBlock>
[[gnu::flatten]] void multiply(const WinogradProduct& p, const float* tiles, const float* weights, float* sums) {
  int64_t column = 0;
  for (; column + kColumns <= p.columns; column += kColumns) {
    multiply_from<kBlock, kTileRows, kColumns>(p, 0, tiles, weights + column * p.columns_stride,
                                               sums + column * p.sums_stride);
  }
  for (; column < p.columns; ++column) {
    multiply_from<kBlock, kTileRows, 1>(p, 0, tiles, weights + column * p.columns_stride,
                                        sums + column * p.sums_stride);
  }
}

// Adds the sums over the tiles at one point of all channels of the image with kCount blocks of the gradient.
template <int kBlock, int kCount>
LOCKSTEP_FORMULA void accumulate_from(const WinogradProduct& p, const float* image, const float* gradient,
                                      float* sums) {
  for (int64_t block = 0; block < p.blocks; ++block, image += p.tiles_stride) {
    for (int row = 0; row < kBlock; row += kGradientRows, sums += kGradientRows * kBlock) {
      for (int64_t first = 0; first < p.tiles; first += kTerms) {
        const int64_t end = p.tiles - first < kTerms ? p.tiles : first + kTerms;
        PieceOfSums<kBlock, kGradientRows, 1, kCount> piece;
#pragma GCC unroll 2
        for (int64_t t = first; t < end; ++t) {
          piece.add(image + t * kBlock + row, gradient + t * kBlock, p.columns_stride);
        }
        piece.end(false, sums, p.sums_stride);
      }
    }
  }
}

template <int kBlock>
[[gnu::flatten]] void accumulate(const WinogradProduct& p, const float* image, const float* gradient, float* sums) {
  int64_t column = 0;
  for (; column + kColumns <= p.columns; column += kColumns) {
    accumulate_from<kBlock, kColumns>(p, image, gradient + column * p.columns_stride, sums + column * p.sums_stride);
  }
  for (; column < p.columns; ++column) {
    accumulate_from<kBlock, 1>(p, image, gradient + column * p.columns_stride, sums + column * p.sums_stride);
  }
}

template <class M, int kBlock>
inline constexpr WinogradLanes kWinograd{
    .taps_h = M::Y::kTaps,
    .taps_w = M::X::kTaps,
    .tile_h = M::Y::kTile,
    .tile_w = M::X::kTile,
    .points = M::Y::kPoints* M::X::kPoints,
    .input = images_to_points<M, typename M::Y::Image, typename M::X::Image, kBlock>,
    .output_gradient = images_to_points<M, typename M::Y::OutputGradient, typename M::X::OutputGradient, kBlock>,
    .output = points_to_images<M, kBlock>,
    .weights = weights_to_points<M, kBlock>,
    .weights_gradient = points_to_weights<M, kBlock>,
    .multiply = multiply<kBlock>,
    .accumulate = accumulate<kBlock>};

template <int kBlock, class... Methods>
constexpr std::array<WinogradLanes, sizeof...(Methods)> winograd_of() {
  return {kWinograd<Methods, kBlock>...};
}
// The table of all kernels for which there is a method.
template <int kBlock>
inline constexpr auto kWinogradMethods = winograd_of<
    kBlock, Method<Direction<3>, Direction<3>>, Method<Direction<1>, Direction<3>>, Method<Direction<3>, Direction<1>>,
    Method<Direction<1>, Direction<7>>, Method<Direction<7>, Direction<1>>>();

}  // namespace lockstep::cpu::LOCKSTEP_LANES_NAMESPACE
