#include "data/image/resample.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// The extent of the triangle of an output position in a source that is `shrink` times smaller than that of the map.
struct Reach {
  double center;
  double support;
  int64_t first, last;  // source elements, from map.begin / shrink on
};
Reach reach_of(const AxisMap& map, int64_t shrink, int64_t at) {
  const auto factor = static_cast<double>(shrink);
  const double scale = static_cast<double>(map.extent) / static_cast<double>(map.target) / factor;
  const double support = std::max(scale, 1.0);
  const double begin = static_cast<double>(map.begin % shrink) / factor;  // of the crop in its first element
  const double center = (static_cast<double>(at) + 0.5) * scale - 0.5 + begin;
  const int64_t end = (map.begin + map.extent + shrink - 1) / shrink - map.begin / shrink;
  return {.center = center,
          .support = support,
          .first = std::max<int64_t>(0, static_cast<int64_t>(std::floor(center - support)) + 1),
          .last = std::min<int64_t>(end - 1, static_cast<int64_t>(std::ceil(center + support)) - 1)};
}

// Appends the non-zero weights of the triangle filter of output position `at`, which sum to 1, and returns the first
// source element. The filter extends one source element to either side; if the axis shrinks, it is wider by the scale.
int64_t append_weights(const AxisMap& map, int64_t shrink, int64_t at, std::vector<float>& weights) {
  if (at < 0 || at >= map.target) return map.begin / shrink;
  const auto [center, support, first, last] = reach_of(map, shrink, at);
  const auto weight = [&, c = center, s = support](int64_t i) {
    return 1.0 - std::abs(static_cast<double>(i) - c) / s;
  };
  double sum = 0.0;
  for (int64_t i = first; i <= last; ++i) sum += weight(i);
  for (int64_t i = first; i <= last; ++i) weights.push_back(static_cast<float>(weight(i) / sum));
  return map.begin / shrink + first;
}

void build_axis(const AxisMap& map, int64_t shrink, int64_t size, TransformScratch::Axis& axis) {
  axis.begin.clear();
  axis.offset.assign(1, 0);
  axis.weights.clear();
  for (int64_t i = 0; i < size; ++i) {
    const int64_t at = map.first + (map.mirror ? size - 1 - i : i);
    axis.begin.push_back(append_weights(map, shrink, at, axis.weights));
    axis.offset.push_back(static_cast<int64_t>(axis.weights.size()));
  }
}

// The functions up to resample_lines() are compiled twice, for the baseline and for AVX2, which converts bytes to
// floats several times faster. There are no fused multiply-adds, so that both give the same bits.
#define LOCKSTEP_INLINE [[gnu::always_inline]] inline

// Writes the weighted sum of source lines `first`, first + stride, ... to `line`: one or two lines, then two at a time,
// in loops that the compiler vectorizes.
template <class T>
LOCKSTEP_INLINE void sum_lines(const T* first, int64_t stride, std::span<const float> weights, std::span<float> line) {
  const auto count = std::ssize(line);
  float* const out = line.data();
  const auto pair = [&](size_t k, const auto& put) {
    const T* const a = first + static_cast<int64_t>(k) * stride;
    const T* const b = a + stride;
    const float weight_a = weights[k];
    const float weight_b = weights[k + 1];
    for (int64_t i = 0; i < count; ++i) {
      put(out[i], weight_a * static_cast<float>(a[i]) + weight_b * static_cast<float>(b[i]));
    }
  };
  size_t done = weights.size() % 2;
  if (weights.empty()) {
    std::fill(line.begin(), line.end(), 0.0F);
  } else if (done == 1) {
    for (int64_t i = 0; i < count; ++i) out[i] = weights[0] * static_cast<float>(first[i]);
  } else {
    pair(0, [](float& to, float value) { to = value; });
    done = 2;
  }
  for (; done < weights.size(); done += 2) pair(done, [](float& to, float value) { to += value; });
}

// A weighted sum of bytes is not negative, and at most 255 up to rounding.
LOCKSTEP_INLINE uint8_t to_byte(float sum) { return static_cast<uint8_t>(sum + 0.5F); }

// Writes one output line of `kChannels` channels, whose distance is `channel` in the source and `plane` in the output,
// if that has planes; `step` is the distance between the columns of a channel.
struct LineLayout {
  int64_t step = 1;
  int64_t channel = 1;
  int64_t plane = 1;
};
template <int kChannels, class Out>
LOCKSTEP_INLINE void sum_columns(const float* line, const TransformScratch::Axis& columns, const LineLayout& layout,
                                 Out* output) {
  const int64_t size = std::ssize(columns.begin);
  for (int64_t x = 0; x < size; ++x) {
    const auto column = static_cast<size_t>(x);
    const float* const source = line + columns.begin[column] * layout.step;
    float sums[kChannels] = {};
    for (int64_t k = columns.offset[column]; k < columns.offset[column + 1]; ++k) {
      const float weight = columns.weights[k];
      const float* const at = source + (k - columns.offset[column]) * layout.step;
      for (int c = 0; c < kChannels; ++c) sums[c] += weight * at[c * layout.channel];
    }
    if constexpr (std::is_same_v<Out, float>) {
      for (int c = 0; c < kChannels; ++c) output[c * layout.plane + x] = sums[c];
    } else {
      for (int c = 0; c < 3; ++c) output[3 * x + c] = to_byte(sums[c % kChannels]);
    }
  }
}

// Three interleaved channels are added as one vector of four, for which the line has room.
using Four [[gnu::vector_size(16)]] = float;
LOCKSTEP_INLINE Four sum_pixel(const float* line, const TransformScratch::Axis& columns, int64_t x) {
  const auto column = static_cast<size_t>(x);
  const float* weight = columns.weights.data() + columns.offset[column];
  const float* const end = columns.weights.data() + columns.offset[column + 1];
  Four sums = {};
  for (const float* at = line + columns.begin[column] * 3; weight != end; ++weight, at += 3) {
    Four pixel;
    std::memcpy(&pixel, at, sizeof pixel);
    sums += *weight * pixel;
  }
  return sums;
}

// The sums of four columns become the bytes of four vectors, and those of one.
LOCKSTEP_INLINE void sum_pixels(const float* line, const TransformScratch::Axis& columns, int64_t, uint8_t* output) {
  using Words [[gnu::vector_size(16)]] = int32_t;
  using Bytes [[gnu::vector_size(16)]] = uint8_t;
  const auto sum = [&](int64_t x) { return __builtin_convertvector(sum_pixel(line, columns, x) + 0.5F, Words); };
  const int64_t size = std::ssize(columns.begin);
  int64_t x = 0;
  for (; x + 4 <= size; x += 4) {
    const auto by_channel = Bytes(sum(x) | sum(x + 1) << 8 | sum(x + 2) << 16 | sum(x + 3) << 24);
    const Bytes by_pixel =
        __builtin_shufflevector(by_channel, by_channel, 0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11, 12, 13, 14, 15);
    std::memcpy(output + 3 * x, &by_pixel, 12);
  }
  for (; x < size; ++x) {
    const Four sums = sum_pixel(line, columns, x);
    for (int64_t k = 0; k < 3; ++k) output[3 * x + k] = to_byte(sums[k]);
  }
}

// The sums of four columns are transposed to one vector per channel.
LOCKSTEP_INLINE void sum_pixels(const float* line, const TransformScratch::Axis& columns, int64_t plane,
                                float* output) {
  const auto sum = [&](int64_t x) { return sum_pixel(line, columns, x); };
  const int64_t size = std::ssize(columns.begin);
  int64_t x = 0;
  for (; x + 4 <= size; x += 4) {
    const Four a = sum(x), b = sum(x + 1), c = sum(x + 2), d = sum(x + 3);
    const Four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const Four last_ab = __builtin_shufflevector(a, b, 2, 6, 3, 7), last_cd = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    const Four channels[] = {__builtin_shufflevector(ab, cd, 0, 1, 4, 5), __builtin_shufflevector(ab, cd, 2, 3, 6, 7),
                             __builtin_shufflevector(last_ab, last_cd, 0, 1, 4, 5)};
    for (int64_t k = 0; k < 3; ++k) std::memcpy(output + k * plane + x, &channels[k], sizeof(Four));
  }
  for (; x < size; ++x) {
    const Four sums = sum(x);
    for (int64_t k = 0; k < 3; ++k) output[k * plane + x] = sums[k];
  }
}

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

// Returns the range of source elements that an axis reads.
Range touched(const TransformScratch::Axis& axis) {
  Range range = {.begin = std::numeric_limits<int64_t>::max(), .end = 0};
  for (size_t i = 0; i < axis.begin.size(); ++i) {
    const int64_t count = axis.offset[i + 1] - axis.offset[i];
    if (count == 0) continue;
    range.begin = std::min(range.begin, axis.begin[i]);
    range.end = std::max(range.end, axis.begin[i] + count);
  }
  return {.begin = std::min(range.begin, range.end), .end = range.end};
}

// The vertical sum comes first, over whole source lines; the columns of the output are then computed from it.
template <class T, class Out>
LOCKSTEP_INLINE void resample_lines_with(const ImageView& image, const T* pixels, const OutputSize& size,
                                         TransformScratch& scratch, Out* output) {
  constexpr bool kPlanes = std::is_same_v<Out, float>;
  const TransformScratch::Axis& rows = scratch.rows;
  const bool planar = image.layout == ImageView::Layout::planar;
  const int64_t segments = planar ? image.channels : 1;
  const int64_t step = planar ? 1 : image.channels;
  const int64_t segment = image.width * step;
  const LineLayout layout = {.step = step, .channel = planar ? segment : 1, .plane = size.height * size.width};
  const Range used = touched(scratch.columns);
  scratch.line.resize(static_cast<size_t>(image.width * image.channels + 1));
  const std::span<float> line(scratch.line);
  for (int64_t y = 0; y < size.height; ++y) {
    const auto row = static_cast<size_t>(y);
    const auto weights = std::span(rows.weights)
                             .subspan(static_cast<size_t>(rows.offset[row]),
                                      static_cast<size_t>(rows.offset[row + 1] - rows.offset[row]));
    for (int64_t s = 0; s < segments; ++s) {
      const T* const first = pixels + (s * image.height + rows.begin[row]) * segment + used.begin * step;
      sum_lines(first, segment, weights,
                line.subspan(static_cast<size_t>(s * segment + used.begin * step),
                             static_cast<size_t>((used.end - used.begin) * step)));
    }
    Out* const out = output + y * size.width * (kPlanes ? 1 : 3);
    if (image.channels == 1) {
      sum_columns<1>(line.data(), scratch.columns, layout, out);
    } else if (planar) {
      sum_columns<3>(line.data(), scratch.columns, layout, out);
    } else {
      sum_pixels(line.data(), scratch.columns, layout.plane, out);
    }
  }
  if (kPlanes && image.channels == 1) {
    std::copy_n(output, layout.plane, output + layout.plane);
    std::copy_n(output, layout.plane, output + 2 * layout.plane);
  }
}

#if defined(__x86_64__)
template <class T, class Out>
__attribute__((target("avx2"))) void resample_lines_avx2(const ImageView& image, const T* pixels,
                                                         const OutputSize& size, TransformScratch& scratch,
                                                         Out* output) {
  resample_lines_with(image, pixels, size, scratch, output);
}
#endif

template <class T, class Out>
void resample_lines(const ImageView& image, const T* pixels, const OutputSize& size, TransformScratch& scratch,
                    Out* output) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return resample_lines_avx2(image, pixels, size, scratch, output);
#endif
  resample_lines_with(image, pixels, size, scratch, output);
}

// Prepares `scratch`, and returns the image of the window.
ImageView begin_resample(const ImageView& whole, const CropPlan& plan, const OutputSize& size,
                         TransformScratch& scratch) {
  ImageView image = whole;
  const ImageWindow window =
      image.window.width > 0 ? image.window : ImageWindow{.height = image.height, .width = image.width};
  require(image.channels == 1 || image.channels == 3, "an image of {} channels", image.channels);
  for (const auto& [map, length] : {std::pair(plan.rows, image.height), std::pair(plan.columns, image.width)}) {
    require(map.extent > 0 && map.target > 0 && map.begin >= 0 && map.begin + map.extent <= length,
            "a crop [{}, {}) of {} pixels", map.begin, map.begin + map.extent, length);
  }
  build_axis(plan.rows, window.shrink, size.height, scratch.rows);
  build_axis(plan.columns, window.shrink, size.width, scratch.columns);
  for (int64_t& begin : scratch.rows.begin) begin = std::max<int64_t>(0, begin - window.top);  // black lines have none
  for (int64_t& begin : scratch.columns.begin) begin = std::max<int64_t>(0, begin - window.left);
  image.height = window.height;
  image.width = window.width;
  return image;
}

}  // namespace

ImageWindow window_of(const CropPlan& plan, const OutputSize& output, int64_t shrink) {
  const auto range = [&](const AxisMap& map, int64_t size) {
    const int64_t low = std::clamp<int64_t>(map.first, 0, map.target - 1);
    const int64_t high = std::clamp<int64_t>(map.first + size - 1, 0, map.target - 1);
    const int64_t begin = map.begin / shrink;
    return Range{.begin = begin + reach_of(map, shrink, low).first,
                 .end = begin + reach_of(map, shrink, high).last + 1};
  };
  const Range rows = range(plan.rows, output.height), columns = range(plan.columns, output.width);
  return {.top = rows.begin,
          .left = columns.begin,
          .height = rows.end - rows.begin,
          .width = columns.end - columns.begin,
          .shrink = shrink};
}

int64_t shrink_of(const CropPlan& plan) {
  const auto leaves_enough = [](const AxisMap& map, int64_t shrink) {
    return static_cast<double>(map.extent) >= kShrunkSpare * static_cast<double>(shrink * map.target);
  };
  for (const int64_t shrink : {8, 4, 2}) {
    if (leaves_enough(plan.rows, shrink) && leaves_enough(plan.columns, shrink)) return shrink;
  }
  return 1;
}

void resample(const ImageView& whole, const CropPlan& plan, const OutputSize& size, TransformScratch& scratch,
              float* output) {
  const ImageView image = begin_resample(whole, plan, size, scratch);
  if (image.u8 != nullptr) {
    resample_lines(image, image.u8, size, scratch, output);
  } else {
    resample_lines(image, image.f32, size, scratch, output);
  }
}

void resample(const ImageView& whole, const CropPlan& plan, const OutputSize& size, TransformScratch& scratch,
              uint8_t* output) {
  require(whole.u8 != nullptr, "an image of floats, whose values bytes cannot hold");
  const ImageView image = begin_resample(whole, plan, size, scratch);
  resample_lines(image, image.u8, size, scratch, output);
}

}  // namespace lockstep
