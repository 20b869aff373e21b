// Winograd's F(4x4, 3x3): tensors to points, the products at each point, and back. Part of lane_body.h: compiled once
// per instruction set, in a namespace of its own.
//
// A tile of 4x4 outputs is the product of two polynomials in each direction, which is found from their values at the
// points 0, p, -p, q, -q and infinity. With p = 5/8 and q = 3/2 the rounding error is half that of the usual 1 and 2
// (compare Barabasz et al., "Error Analysis and Improving the Accuracy of Winograd Convolution", 2020), and all factors
// but those of the weights are exact.
#pragma once

#include "backend/cpu/lanes/lanes.h"

namespace lockstep::cpu::LOCKSTEP_LANES_NAMESPACE {

constexpr int kSide = 6;  // points of one direction
constexpr float kP = 0.625F, kQ = 1.5F, kP2 = kP * kP, kQ2 = kQ * kQ;
constexpr float kZeroShare = 1 / (kP2 * kQ2), kShareP = 1 / (2 * kP2 * (kP2 - kQ2)),
                kShareQ = 1 / (2 * kQ2 * (kQ2 - kP2));

// One direction of each transform. Those of a gradient are the transposes of those of the convolution.
struct ImageToPoints {
  static constexpr int kFrom = 6, kTo = kSide;
  template <class V>
  LOCKSTEP_FORMULA static void apply(const V (&d)[kFrom], V (&r)[kTo]) {
    const V even_p = d[4] - V(kQ2) * d[2], odd_p = d[3] - V(kQ2) * d[1];
    const V even_q = d[4] - V(kP2) * d[2], odd_q = d[3] - V(kP2) * d[1];
    r[0] = V(kP2 * kQ2) * d[0] + (d[4] - V(kP2 + kQ2) * d[2]);
    r[1] = even_p + V(kP) * odd_p;
    r[2] = even_p - V(kP) * odd_p;
    r[3] = even_q + V(kQ) * odd_q;
    r[4] = even_q - V(kQ) * odd_q;
    r[5] = V(kP2 * kQ2) * d[1] + (d[5] - V(kP2 + kQ2) * d[3]);
  }
};

struct PointsToOutput {
  static constexpr int kFrom = kSide, kTo = 4;
  template <class V>
  LOCKSTEP_FORMULA static void apply(const V (&m)[kFrom], V (&y)[kTo]) {
    const V even_p = m[1] + m[2], odd_p = m[1] - m[2], even_q = m[3] + m[4], odd_q = m[3] - m[4];
    y[0] = m[0] + even_p + even_q;
    y[1] = V(kP) * odd_p + V(kQ) * odd_q;
    y[2] = V(kP2) * even_p + V(kQ2) * even_q;
    y[3] = V(kP * kP2) * odd_p + (V(kQ * kQ2) * odd_q + m[5]);
  }
};

struct OutputGradientToPoints {
  static constexpr int kFrom = 4, kTo = kSide;
  template <class V>
  LOCKSTEP_FORMULA static void apply(const V (&y)[kFrom], V (&r)[kTo]) {
    const V even_p = y[0] + V(kP2) * y[2], odd_p = y[1] + V(kP2) * y[3];
    const V even_q = y[0] + V(kQ2) * y[2], odd_q = y[1] + V(kQ2) * y[3];
    r[0] = y[0];
    r[1] = even_p + V(kP) * odd_p;
    r[2] = even_p - V(kP) * odd_p;
    r[3] = even_q + V(kQ) * odd_q;
    r[4] = even_q - V(kQ) * odd_q;
    r[5] = y[3];
  }
};

struct WeightsToPoints {
  static constexpr int kFrom = 3, kTo = kSide;
  template <class V>
  LOCKSTEP_FORMULA static void apply(const V (&g)[kFrom], V (&r)[kTo]) {
    const V even_p = V(kShareP) * g[0] + V(kShareP * kP2) * g[2], odd_p = V(kShareP * kP) * g[1];
    const V even_q = V(kShareQ) * g[0] + V(kShareQ * kQ2) * g[2], odd_q = V(kShareQ * kQ) * g[1];
    r[0] = V(kZeroShare) * g[0];
    r[1] = even_p + odd_p;
    r[2] = even_p - odd_p;
    r[3] = even_q + odd_q;
    r[4] = even_q - odd_q;
    r[5] = g[2];
  }
};

struct PointsToWeightsGradient {
  static constexpr int kFrom = kSide, kTo = 3;
  template <class V>
  LOCKSTEP_FORMULA static void apply(const V (&s)[kFrom], V (&g)[kTo]) {
    const V even_p = s[1] + s[2], odd_p = s[1] - s[2], even_q = s[3] + s[4], odd_q = s[3] - s[4];
    g[0] = V(kZeroShare) * s[0] + (V(kShareP) * even_p + V(kShareQ) * even_q);
    g[1] = V(kShareP * kP) * odd_p + V(kShareQ * kQ) * odd_q;
    g[2] = V(kShareP * kP2) * even_p + (V(kShareQ * kQ2) * even_q + s[5]);
  }
};

// Both directions: load(y, x) gives a vector, store(y, x, vector) takes one.
template <class Transform, class V, class Load, class Store>
LOCKSTEP_FORMULA void transform(const Load& load, const Store& store) {
  constexpr int kFrom = Transform::kFrom, kTo = Transform::kTo;
  V half[kTo][kFrom];
  for (int x = 0; x < kFrom; ++x) {
    V column[kFrom], result[kTo];
    for (int y = 0; y < kFrom; ++y) column[y] = load(y, x);
    Transform::template apply<V>(column, result);
    for (int y = 0; y < kTo; ++y) half[y][x] = result[y];
  }
  for (int y = 0; y < kTo; ++y) {
    V result[kTo];
    Transform::template apply<V>(half[y], result);
    for (int x = 0; x < kTo; ++x) store(y, x, result[x]);
  }
}

// The image, row and column of a tile.
struct TilePosition {
  int64_t n, y, x;
  TilePosition(const WinogradImages& images, int64_t tile)
      : n(tile / (images.tiles_h * images.tiles_w)),
        y(tile / images.tiles_w % images.tiles_h * 4 - images.pad_h),
        x(tile % images.tiles_w * 4 - images.pad_w) {}
};

template <class Transform, int kBlock>
[[gnu::flatten]] void images_to_points(const WinogradImages& images, const WinogradTiles& tiles, const float* from,
                                       float* points) {
  using V = Lanes<kBlock>;
  constexpr int kFrom = Transform::kFrom;
  for (int64_t block = 0; block < images.blocks; ++block) {
    for (int64_t t = 0; t < tiles.count; ++t) {
      const TilePosition at(images, tiles.first + t);
      const float* plane = from + (at.n * images.blocks + block) * images.h * images.w * kBlock;
      float* to = points + (block * tiles.capacity + t) * kBlock;
      const auto put = [&](int y, int x, const V& value) { store(value, to + (y * kSide + x) * tiles.point_stride); };
      if (at.y >= 0 && at.x >= 0 && at.y + kFrom <= images.h && at.x + kFrom <= images.w) {
        const float* corner = plane + (at.y * images.w + at.x) * kBlock;
        transform<Transform, V>([&](int y, int x) { return load<V>(corner + (y * images.w + x) * kBlock); }, put);
      } else {
        transform<Transform, V>(
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

template <int kBlock>
[[gnu::flatten]] void points_to_images(const WinogradImages& images, const WinogradTiles& tiles, const float* points,
                                       const float* bias, int64_t block, float* to) {
  using V = Lanes<kBlock>;
  const V shift = bias == nullptr ? V(0) : load<V>(bias);
  for (int64_t t = 0; t < tiles.count; ++t) {
    const TilePosition at(images, tiles.first + t);
    float* corner = to + (((at.n * images.blocks + block) * images.h + at.y) * images.w + at.x) * kBlock;
    const int64_t rows = images.h - at.y, columns = images.w - at.x;
    transform<PointsToOutput, V>(
        [&](int y, int x) { return load<V>(points + (y * kSide + x) * tiles.point_stride + t * kBlock); },
        [&](int y, int x, const V& value) {
          if (y < rows && x < columns) store(value + shift, corner + (y * images.w + x) * kBlock);
        });
  }
}

// Calls f(row, column, offset of its nine elements) for each weight of a block of rows and one of columns.
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

template <int kBlock>
[[gnu::flatten]] void weights_to_points(const WinogradWeights& w, const WeightBlock& block, const float* from,
                                        float* points) {
  using V = Lanes<kBlock>;
  alignas(64) float packed[kBlock][9][kBlock] = {};
  for_each_weight<kBlock>(w, block, [&](int64_t r, int64_t c, int64_t offset) {
    const float* g = from + offset;
    if (w.rotated) {
      for (int i = 0; i < 9; ++i) packed[r][i][c] = g[8 - i];
    } else {
      for (int i = 0; i < 9; ++i) packed[r][i][c] = g[i];
    }
  });
  float* to = points + block.row * kBlock * kBlock;
  for (int r = 0; r < kBlock; ++r, to += kBlock) {
    transform<WeightsToPoints, V>([&](int y, int x) { return load<V>(packed[r][y * 3 + x]); },
                                  [&](int y, int x, const V& v) { store(v, to + (y * kSide + x) * w.point_stride); });
  }
}

// The transpose of weights_to_points().
template <int kBlock>
[[gnu::flatten]] void points_to_weights(const WinogradWeights& w, const WeightBlock& block, const float* points,
                                        float* to) {
  using V = Lanes<kBlock>;
  alignas(64) float packed[kBlock][9][kBlock];
  const float* from = points + block.row * kBlock * kBlock;
  for (int r = 0; r < kBlock; ++r, from += kBlock) {
    transform<PointsToWeightsGradient, V>(
        [&](int y, int x) { return load<V>(from + (y * kSide + x) * w.point_stride); },
        [&](int y, int x, const V& v) { store(v, packed[r][y * 3 + x]); });
  }
  for_each_weight<kBlock>(w, block, [&](int64_t r, int64_t c, int64_t offset) {
    for (int i = 0; i < 9; ++i) to[offset + i] = packed[r][i][c];
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

template <int kBlock>
inline constexpr WinogradLanes kWinograd{.input = images_to_points<ImageToPoints, kBlock>,
                                         .output_gradient = images_to_points<OutputGradientToPoints, kBlock>,
                                         .output = points_to_images<kBlock>,
                                         .weights = weights_to_points<kBlock>,
                                         .weights_gradient = points_to_weights<kBlock>,
                                         .multiply = multiply<kBlock>,
                                         .accumulate = accumulate<kBlock>};

}  // namespace lockstep::cpu::LOCKSTEP_LANES_NAMESPACE
