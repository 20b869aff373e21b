#include "data/resample.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// How far the triangle of an output position reaches.
struct Reach {
  double center;
  double support;
  int64_t first, last;  // source elements, from the window's begin on
};
Reach reach_of(const AxisMap& map, int64_t at) {
  const double scale = static_cast<double>(map.extent) / static_cast<double>(map.target);
  const double support = std::max(scale, 1.0);
  const double center = (static_cast<double>(at) + 0.5) * scale - 0.5;
  return {.center = center,
          .support = support,
          .first = std::max<int64_t>(0, static_cast<int64_t>(std::floor(center - support)) + 1),
          .last = std::min<int64_t>(map.extent - 1, static_cast<int64_t>(std::ceil(center + support)) - 1)};
}

// The triangle filter of output position `at`, one source element wide on either side, or wider by the scale when the
// axis shrinks. Appends its non-zero weights, which sum to 1, and returns the first element they belong to.
int64_t append_weights(const AxisMap& map, int64_t at, std::vector<float>& weights) {
  if (at < 0 || at >= map.target) return map.begin;
  const auto [center, support, first, last] = reach_of(map, at);
  const auto weight = [&, c = center, s = support](int64_t i) {
    return 1.0 - std::abs(static_cast<double>(i) - c) / s;
  };
  double sum = 0.0;
  for (int64_t i = first; i <= last; ++i) sum += weight(i);
  for (int64_t i = first; i <= last; ++i) weights.push_back(static_cast<float>(weight(i) / sum));
  return map.begin + first;
}

void build_axis(const AxisMap& map, int64_t size, TransformScratch::Axis& axis) {
  axis.begin.clear();
  axis.offset.assign(1, 0);
  axis.weights.clear();
  for (int64_t i = 0; i < size; ++i) {
    const int64_t at = map.first + (map.mirror ? size - 1 - i : i);
    axis.begin.push_back(append_weights(map, at, axis.weights));
    axis.offset.push_back(static_cast<int64_t>(axis.weights.size()));
  }
}

// The weighted sum of source lines `first`, first + stride, ... into `line`. Two lines at a time: half the traffic to
// `line`, in loops that the compiler vectorizes.
template <class T>
void sum_lines(const T* first, int64_t stride, std::span<const float> weights, std::span<float> line) {
  const auto count = std::ssize(line);
  float* const out = line.data();
  if (weights.size() % 2 == 0) {
    std::fill(line.begin(), line.end(), 0.0F);
  } else {
    for (int64_t i = 0; i < count; ++i) out[i] = weights[0] * static_cast<float>(first[i]);
  }
  for (size_t k = weights.size() % 2; k < weights.size(); k += 2) {
    const T* const a = first + static_cast<int64_t>(k) * stride;
    const T* const b = a + stride;
    const float weight_a = weights[k];
    const float weight_b = weights[k + 1];
    for (int64_t i = 0; i < count; ++i) {
      out[i] += weight_a * static_cast<float>(a[i]) + weight_b * static_cast<float>(b[i]);
    }
  }
}

// One output line of `kChannels` channels at once, which lie `channel` apart in the source and `plane` in the output;
// `step` separates a channel's columns.
struct LineLayout {
  int64_t step = 1;
  int64_t channel = 1;
  int64_t plane = 1;
};
// Three channels side by side are summed as four, which the compiler makes one vector of; the line has room for it.
template <int kChannels, int kLanes>
void sum_columns(const float* line, const TransformScratch::Axis& columns, const LineLayout& layout, float* output) {
  const int64_t size = std::ssize(columns.begin);
  const int64_t channel = kLanes > kChannels ? 1 : layout.channel;
  for (int64_t x = 0; x < size; ++x) {
    const auto column = static_cast<size_t>(x);
    const float* const source = line + columns.begin[column] * layout.step;
    float sums[kLanes] = {};
    for (int64_t k = columns.offset[column]; k < columns.offset[column + 1]; ++k) {
      const float weight = columns.weights[static_cast<size_t>(k)];
      const float* const at = source + (k - columns.offset[column]) * layout.step;
      for (int c = 0; c < kLanes; ++c) sums[c] += weight * at[c * channel];
    }
    for (int c = 0; c < kChannels; ++c) output[c * layout.plane + x] = sums[c];
  }
}

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

// The source elements that an axis reads at all.
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

// Vertical first: whole source lines are summed, then only the output's own columns are formed from the sum.
template <class T>
void resample_lines(const ImageView& image, const T* pixels, int64_t size, TransformScratch& scratch, float* output) {
  const TransformScratch::Axis& rows = scratch.rows;
  const bool planar = image.layout == ImageView::Layout::planar;
  const int64_t segments = planar ? image.channels : 1;
  const int64_t step = planar ? 1 : image.channels;
  const int64_t segment = image.width * step;
  const LineLayout layout = {.step = step, .channel = planar ? segment : 1, .plane = size * size};
  const Range used = touched(scratch.columns);
  scratch.line.resize(static_cast<size_t>(image.width * image.channels + 1));
  const std::span<float> line(scratch.line);
  for (int64_t y = 0; y < size; ++y) {
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
    float* const out = output + y * size;
    if (image.channels == 1) {
      sum_columns<1, 1>(line.data(), scratch.columns, layout, out);
    } else if (planar) {
      sum_columns<3, 3>(line.data(), scratch.columns, layout, out);
    } else {
      sum_columns<3, 4>(line.data(), scratch.columns, {.step = 3, .channel = 1, .plane = layout.plane}, out);
    }
  }
  if (image.channels == 1) {
    std::copy_n(output, layout.plane, output + layout.plane);
    std::copy_n(output, layout.plane, output + 2 * layout.plane);
  }
}

}  // namespace

ImageWindow window_of(const CropPlan& plan, int64_t size) {
  const auto range = [&](const AxisMap& map) {
    const int64_t low = std::clamp<int64_t>(map.first, 0, map.target - 1);
    const int64_t high = std::clamp<int64_t>(map.first + size - 1, 0, map.target - 1);
    return Range{.begin = map.begin + reach_of(map, low).first, .end = map.begin + reach_of(map, high).last + 1};
  };
  const Range rows = range(plan.rows), columns = range(plan.columns);
  return {
      .top = rows.begin, .left = columns.begin, .height = rows.end - rows.begin, .width = columns.end - columns.begin};
}

void resample(const ImageView& whole, const CropPlan& plan, int64_t size, TransformScratch& scratch, float* output) {
  ImageView image = whole;
  const ImageWindow window =
      image.window.width > 0 ? image.window : ImageWindow{.height = image.height, .width = image.width};
  require(image.channels == 1 || image.channels == 3, "an image of {} channels", image.channels);
  for (const auto& [map, length] : {std::pair(plan.rows, image.height), std::pair(plan.columns, image.width)}) {
    require(map.extent > 0 && map.target > 0 && map.begin >= 0 && map.begin + map.extent <= length,
            "a crop [{}, {}) of {} pixels", map.begin, map.begin + map.extent, length);
  }
  build_axis(plan.rows, size, scratch.rows);
  build_axis(plan.columns, size, scratch.columns);
  for (int64_t& begin : scratch.rows.begin) begin = std::max<int64_t>(0, begin - window.top);  // black lines have none
  for (int64_t& begin : scratch.columns.begin) begin = std::max<int64_t>(0, begin - window.left);
  image.height = window.height;
  image.width = window.width;
  if (image.u8 != nullptr) {
    resample_lines(image, image.u8, size, scratch, output);
  } else {
    resample_lines(image, image.f32, size, scratch, output);
  }
}

}  // namespace lockstep
