#include "backend/cpu/winograd.h"

#include <algorithm>
#include <string>

#include "backend/cpu/lanes/lane_kernels.h"
#include "backend/cpu/loops.h"

namespace lockstep::cpu {
namespace {

constexpr int64_t kGroup = 2;  // blocks of columns that are multiplied at once

int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t rounded_up(int64_t a, int64_t b) { return divided_up(a, b) * b; }

// Elements from point to point. There is one cache line more than needed, because a power of two would put all points
// of a tile in the same few sets of the caches.
int64_t padded(int64_t elements) { return elements + 16; }

// Points of tiles: of one chunk, or of all.
struct TilePoints {
  int64_t capacity = 0, block_stride = 0, point_stride = 0, elements = 0;
  TilePoints() = default;
  TilePoints(int64_t tiles, int64_t blocks, int block, int64_t points)
      : capacity(tiles),
        block_stride(tiles * block),
        point_stride(padded(blocks * block_stride)),
        elements(points * point_stride) {}
  WinogradTiles of(Range range) const { return {range.begin, range.size(), capacity, point_stride}; }
};

// Null if there is no method for the window.
const WinogradLanes* lanes_for(const Window& w, int block) {
  const auto methods = lane_kernels(DType::f32).winograd[block == 8 ? 0 : 1];
  const auto found = std::ranges::find_if(
      methods, [&](const WinogradLanes& m) { return m.taps_h == w.kernel_h && m.taps_w == w.kernel_w; });
  return found == methods.end() ? nullptr : &*found;
}

WinogradImages images_of(const WinogradLanes& lanes, const TensorDesc& desc, int block, const Shape& tiled) {
  return {.h = desc.shape.h(),
          .w = desc.shape.w(),
          .blocks = divided_up(desc.shape.c(), block),
          .tiles_h = divided_up(tiled.h(), lanes.tile_h),
          .tiles_w = divided_up(tiled.w(), lanes.tile_w)};
}

// The geometry that all three kernels share.
class WinogradKernel : public Kernel {
 public:
  size_t workspace_bytes() const final { return static_cast<size_t>(workspace_elements_) * sizeof(float); }
  std::string implementation() const final { return "winograd " + std::string(name_); }

 protected:
  // The windows of `from` are read with padding for tiles of `to`'s size.
  WinogradKernel(const Context& context, const Window& window, const TensorDesc& from, const TensorDesc& to)
      : block_(context.blocked.id),
        lanes_(*lanes_for(window, block_)),
        name_(lane_kernels(DType::f32).name),
        threads_(context.threads),
        from_(images_of(lanes_, from, block_, to.shape)),
        to_(images_of(lanes_, to, block_, to.shape)),
        tiles_(to.shape.n() * to_.tiles_h * to_.tiles_w) {}

  int64_t column_elements() const { return lanes_.points * weights_.point_stride; }
  static Range part(int64_t first, int64_t end, int64_t size) { return {first, std::min(end, first + size)}; }

  int block_;
  const WinogradLanes& lanes_;
  std::string_view name_;
  int threads_;
  WinogradImages from_, to_;
  int64_t tiles_;
  WinogradWeights weights_;
  int64_t workspace_elements_ = 0;
};

// Tiles whose points stay in the second-level cache. The number is a multiple of the rows that one product processes.
int64_t chunk_of(int64_t tiles, int64_t points, int64_t channels) {
  constexpr int64_t kCacheElements = 112 * 1024, kRows = 12, kFewest = 24, kMost = 96;
  const int64_t most = std::clamp(kCacheElements / (points * channels), kFewest, kMost);
  return rounded_up(divided_up(tiles, divided_up(tiles, most)), kRows);
}

// A convolution: forward, or the gradient of the input with rotated weights. Either the weights are transformed first,
// and each thread runs all stages on its tiles, chunk by chunk; or, if there are fewer tiles than output channels, the
// tiles are transformed first, and each thread runs all stages on its columns of the weights.
class Convolution final : public WinogradKernel {
 public:
  Convolution(const Context& context, const WinogradConvolution& c, bool gradient)
      : WinogradKernel(context, c.window, gradient ? c.dst : c.src, gradient ? c.src : c.dst),
        bias_(!gradient && c.bias),
        tiles_first_(tiles_ < to_.blocks * block_),
        group_(tiles_first_ && to_.blocks < kGroup * threads_ ? 1 : kGroup),
        chunk_(chunk_of(tiles_first_ ? tiles_ : divided_up(tiles_, threads_), lanes_.points, from_.blocks * block_)),
        points_(tiles_first_ ? tiles_ : chunk_, from_.blocks, block_, lanes_.points),
        sums_(chunk_, group_, block_, lanes_.points) {
    from_.pad_h = gradient ? lanes_.taps_h - 1 - c.window.pad_h : c.window.pad_h;
    from_.pad_w = gradient ? lanes_.taps_w - 1 - c.window.pad_w : c.window.pad_w;
    const int64_t in = c.src.shape.c(), out = c.dst.shape.c(), taps = lanes_.taps_h * lanes_.taps_w;
    weights_ =
        gradient ? WinogradWeights{out, in, in * taps, taps, true} : WinogradWeights{in, out, taps, in * taps, false};
    weights_.point_stride = padded(from_.blocks * block_ * block_);
    own_elements_ = sums_.elements + (tiles_first_ ? group_ * column_elements() : points_.elements);
    workspace_elements_ = threads_ * own_elements_ + (tiles_first_ ? points_.elements : to_.blocks * column_elements());
  }

  void run(const KernelArgs& args) const override {
    auto* const shared = static_cast<float*>(args.workspace);
    float* const own = shared + workspace_elements_ - threads_ * own_elements_;
    if (tiles_first_) {
      run_tiles_first(args, shared, own);
    } else {
      run_weights_first(args, shared, own);
    }
  }

 private:
  void run_weights_first(const KernelArgs& args, float* weights, float* own) const {
    parallel_ranges(threads_, to_.blocks * from_.blocks, 1, [&](Range range, int) {
      for (int64_t i = range.begin; i < range.end; ++i) {
        const WeightBlock at{i % from_.blocks, i / from_.blocks};
        lanes_.weights(weights_, at, input(args, 1), weights + at.column * column_elements());
      }
    });
    parallel_ranges(threads_, tiles_, 1, [&](Range range, int thread) {
      float* const sums = own + thread * own_elements_;
      float* const points = sums + sums_.elements;
      for (int64_t first = range.begin; first < range.end; first += chunk_) {
        const Range tiles = part(first, range.end, chunk_);
        lanes_.input(from_, points_.of(tiles), input(args, 0), points);
        for (int64_t column = 0; column < to_.blocks; column += group_) {
          multiply(args, tiles, points, column, weights + column * column_elements(), sums);
        }
      }
    });
  }

  void run_tiles_first(const KernelArgs& args, float* points, float* own) const {
    parallel_ranges(threads_, tiles_, 1, [&](Range range, int) {
      lanes_.input(from_, points_.of(range), input(args, 0), points + range.begin * block_);
    });
    parallel_ranges(threads_, to_.blocks, group_, [&](Range range, int thread) {
      float* const sums = own + thread * own_elements_;
      float* const weights = sums + sums_.elements;
      for (int64_t column = range.begin; column < range.end; column += group_) {
        const Range columns = part(column, range.end, group_);
        for (int64_t i = 0; i < columns.size() * from_.blocks; ++i) {
          const int64_t at = i / from_.blocks;
          lanes_.weights(weights_, {i % from_.blocks, column + at}, input(args, 1), weights + at * column_elements());
        }
        for (int64_t first = 0; first < tiles_; first += chunk_) {
          multiply(args, part(first, tiles_, chunk_), points + first * block_, column, weights, sums);
        }
      }
    });
  }

  // One group of columns of these tiles.
  void multiply(const KernelArgs& args, Range tiles, const float* points, int64_t column, const float* weights,
                float* sums) const {
    const Range columns = part(column, to_.blocks, group_);
    const WinogradProduct product{.tiles = tiles.size(),
                                  .blocks = from_.blocks,
                                  .columns = columns.size(),
                                  .tiles_stride = points_.block_stride,
                                  .columns_stride = column_elements(),
                                  .sums_stride = sums_.block_stride};
    for (int64_t p = 0; p < lanes_.points; ++p) {
      lanes_.multiply(product, points + p * points_.point_stride, weights + p * weights_.point_stride,
                      sums + p * sums_.point_stride);
    }
    for (int64_t c = columns.begin; c < columns.end; ++c) {
      ChannelValues<float> bias{};
      const int64_t channel = c * block_;
      if (bias_) std::copy_n(input(args, 2) + channel, std::min<int64_t>(block_, weights_.columns - channel), bias.at);
      lanes_.output(to_, sums_.of(tiles), sums + (c - column) * sums_.block_stride, bias.at, c, output(args, 0));
    }
  }

  bool bias_, tiles_first_;
  int64_t group_, chunk_;
  TilePoints points_, sums_;
  int64_t own_elements_ = 0;
};

LOCKSTEP_VECTORIZED void add_to(float* sums, const float* more, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sums[i] += more[i];
}

// The gradient of the weights: the products are sums over tiles. Either each thread sums over its tiles, chunk by
// chunk, for all weights; or all tiles are transformed first, and each thread runs all stages on its columns of the
// weights. The variant that needs less memory is chosen.
class WeightsGradient final : public WinogradKernel {
 public:
  WeightsGradient(const Context& context, const WinogradConvolution& c)
      : WinogradKernel(context, c.window, c.src, c.dst),
        bias_(c.bias),
        parts_(std::min<int64_t>(threads_, tiles_)),
        group_(to_.blocks < kGroup * threads_ ? 1 : kGroup),
        chunk_(chunk_of(divided_up(tiles_, parts_), lanes_.points, (from_.blocks + to_.blocks) * block_ / 2)) {
    from_.pad_h = c.window.pad_h;
    from_.pad_w = c.window.pad_w;
    const int64_t in = c.src.shape.c(), taps = lanes_.taps_h * lanes_.taps_w;
    weights_ = {in, c.dst.shape.c(), taps, in * taps, false, padded(from_.blocks * block_ * block_)};
    const auto points = [&](int64_t tiles) {
      return Points{{tiles, from_.blocks, block_, lanes_.points}, {tiles, to_.blocks, block_, lanes_.points}};
    };
    const int64_t tiles_first = points(tiles_).elements() + threads_ * group_ * column_elements();
    const int64_t chunks = parts_ * (points(chunk_).elements() + to_.blocks * column_elements());
    tiles_first_ = tiles_first < chunks;
    points_ = points(tiles_first_ ? tiles_ : chunk_);
    workspace_elements_ = std::min(tiles_first, chunks);
  }

  void run(const KernelArgs& args) const override {
    auto* const workspace = static_cast<float*>(args.workspace);
    if (tiles_first_) {
      run_tiles_first(args, workspace, workspace + points_.elements());
    } else {
      run_chunks(args, workspace, workspace + parts_ * to_.blocks * column_elements());
    }
    if (bias_) sum_bias(args);
  }

 private:
  struct Points {
    TilePoints image, gradient;
    int64_t elements() const { return image.elements + gradient.elements; }
  };

  void transform(const KernelArgs& args, Range tiles, float* points) const {
    lanes_.input(from_, points_.image.of(tiles), input(args, 0), points);
    lanes_.output_gradient(to_, points_.gradient.of(tiles), input(args, 1), points + points_.image.elements);
  }

  void accumulate(int64_t tiles, const float* points, Range columns, float* sums) const {
    const WinogradProduct product{.tiles = tiles,
                                  .blocks = from_.blocks,
                                  .columns = columns.size(),
                                  .tiles_stride = points_.image.block_stride,
                                  .columns_stride = points_.gradient.block_stride,
                                  .sums_stride = column_elements()};
    const float* const gradient = points + points_.image.elements + columns.begin * points_.gradient.block_stride;
    for (int64_t p = 0; p < lanes_.points; ++p) {
      lanes_.accumulate(product, points + p * points_.image.point_stride, gradient + p * points_.gradient.point_stride,
                        sums + p * weights_.point_stride);
    }
  }

  void run_chunks(const KernelArgs& args, float* sums, float* points) const {
    const int64_t part_elements = to_.blocks * column_elements();
    parallel_ranges(threads_, parts_, 1, [&](Range parts, int) {
      for (int64_t i = parts.begin; i < parts.end; ++i) {
        float* const own = sums + i * part_elements;
        std::fill_n(own, part_elements, 0.0F);
        const Range range = range_of({.index = i, .parts = parts_}, tiles_, 1);
        for (int64_t first = range.begin; first < range.end; first += chunk_) {
          const Range tiles = part(first, range.end, chunk_);
          transform(args, tiles, points + i * points_.elements());
          accumulate(tiles.size(), points + i * points_.elements(), {0, to_.blocks}, own);
        }
      }
    });
    parallel_ranges(threads_, to_.blocks * from_.blocks, 1, [&](Range range, int) {
      for (int64_t i = range.begin; i < range.end; ++i) {
        const WeightBlock at{i % from_.blocks, i / from_.blocks};
        float* const own = sums + at.column * column_elements();
        const int64_t elements = block_ * block_;
        for (int64_t p = 0; p < lanes_.points; ++p) {
          float* const to = own + p * weights_.point_stride + at.row * elements;
          for (int64_t other = 1; other < parts_; ++other) add_to(to, to + other * part_elements, elements);
        }
        lanes_.weights_gradient(weights_, at, own, output(args, 0));
      }
    });
  }

  void run_tiles_first(const KernelArgs& args, float* points, float* sums) const {
    parallel_ranges(threads_, tiles_, 1,
                    [&](Range range, int) { transform(args, range, points + range.begin * block_); });
    parallel_ranges(threads_, to_.blocks, group_, [&](Range range, int thread) {
      float* const own = sums + thread * group_ * column_elements();
      for (int64_t column = range.begin; column < range.end; column += group_) {
        const Range columns = part(column, range.end, group_);
        std::fill_n(own, columns.size() * column_elements(), 0.0F);
        accumulate(tiles_, points, columns, own);
        for (int64_t i = 0; i < columns.size() * from_.blocks; ++i) {
          const int64_t at = i / from_.blocks;
          lanes_.weights_gradient(weights_, {i % from_.blocks, column + at}, own + at * column_elements(),
                                  output(args, 0));
        }
      }
    });
  }

  void sum_bias(const KernelArgs& args) const {
    const int64_t pixels = to_.h * to_.w, images = tiles_ / (to_.tiles_h * to_.tiles_w);
    parallel_ranges(threads_, to_.blocks, 1, [&](Range range, int) {
      for (int64_t c = range.begin; c < range.end; ++c) {
        ChannelValues<double> sum{};
        for (int64_t n = 0; n < images; ++n) {
          MomentSums moments;
          lane_kernels(DType::f32)
              .moments({pixels, block_}, input(args, 1) + (n * to_.blocks + c) * pixels * block_, moments);
          for (int i = 0; i < block_; ++i) sum.at[i] += moments.mean.at[i] * static_cast<double>(pixels);
        }
        const int64_t channel = c * block_;
        std::copy_n(sum.at, std::min<int64_t>(block_, weights_.columns - channel), output(args, 1) + channel);
      }
    });
  }

  bool bias_, tiles_first_ = false;
  int64_t parts_, group_, chunk_;
  Points points_;
};

}  // namespace

bool winograd_pays(const Context& context, const WinogradConvolution& c) {
  const Window& w = c.window;
  const WinogradLanes* lanes = lanes_for(w, context.blocked.id);
  const bool suits = lanes && w.stride_h == 1 && w.stride_w == 1 && w.pad_h < w.kernel_h && w.pad_w < w.kernel_w &&
                     c.src.dtype == DType::f32;
  if (!context.winograd || !suits) return false;
  // The unit is the time of one multiplication at a point; the values are fitted to measurements (docs/benchmarks).
  // Weights cost most if there are few tiles.
  constexpr double kTileTransform = 7, kWeightTransform = 14, kMargin = 0.95;
  const auto blocked = [&](const TensorDesc& desc) {
    return static_cast<double>(rounded_up(desc.shape.c(), context.blocked.id));
  };
  const double in = blocked(c.src), out = blocked(c.dst);
  const Shape& y = c.dst.shape;
  const auto tiles = static_cast<double>(y.n() * divided_up(y.h(), lanes->tile_h) * divided_up(y.w(), lanes->tile_w));
  const auto direct = static_cast<double>(w.kernel_h * w.kernel_w * c.src.shape.c() * y.elements());
  const double ours = lanes->points * (tiles * (in * out + kTileTransform * (in + out)) + kWeightTransform * in * out);
  return ours < kMargin * direct;
}

std::unique_ptr<Kernel> make_winograd_forward(const Context& context, const WinogradConvolution& c) {
  return std::make_unique<Convolution>(context, c, false);
}
std::unique_ptr<Kernel> make_winograd_input_gradient(const Context& context, const WinogradConvolution& c) {
  return std::make_unique<Convolution>(context, c, true);
}
std::unique_ptr<Kernel> make_winograd_weights_gradient(const Context& context, const WinogradConvolution& c) {
  return std::make_unique<WeightsGradient>(context, c);
}

}  // namespace lockstep::cpu
