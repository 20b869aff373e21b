#include "data/resample.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// The triangle filter of output position `at`, one source element wide on either side, or wider by the scale when the
// axis shrinks. Appends its non-zero weights, which sum to 1, and returns the first element they belong to.
int64_t append_weights(const AxisMap& map, int64_t at, std::vector<float>& weights) {
  if (at < 0 || at >= map.target) return map.begin;
  const double scale = static_cast<double>(map.extent) / static_cast<double>(map.target);
  const double support = std::max(scale, 1.0);
  const double center = (static_cast<double>(at) + 0.5) * scale - 0.5;
  const auto first = std::max<int64_t>(0, static_cast<int64_t>(std::floor(center - support)) + 1);
  const auto last = std::min<int64_t>(map.extent - 1, static_cast<int64_t>(std::ceil(center + support)) - 1);
  const auto weight = [&](int64_t i) { return 1.0 - std::abs(static_cast<double>(i) - center) / support; };
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

// Adds weight * source to a line of floats.
template <class T>
void accumulate(float* line, const T* source, float weight, int64_t count) {
  for (int64_t i = 0; i < count; ++i) line[i] += weight * static_cast<float>(source[i]);
}

// Vertical first: whole source lines are summed (contiguous, so the compiler vectorizes), then only the output's own
// columns are formed from the sum.
template <class T>
void resample_lines(const ImageView& image, const T* pixels, int64_t size, TransformScratch& scratch, float* output) {
  const TransformScratch::Axis& rows = scratch.rows;
  const TransformScratch::Axis& columns = scratch.columns;
  const bool planar = image.layout == ImageView::Layout::planar;
  const int64_t segments = planar ? image.channels : 1;
  const int64_t step = planar ? 1 : image.channels;  // between the columns of one channel
  const int64_t segment = image.width * step;
  scratch.line.resize(static_cast<size_t>(image.width * image.channels));
  float* const line = scratch.line.data();
  for (int64_t y = 0; y < size; ++y) {
    std::fill(scratch.line.begin(), scratch.line.end(), 0.0F);
    const auto row = static_cast<size_t>(y);
    for (int64_t k = rows.offset[row]; k < rows.offset[row + 1]; ++k) {
      const int64_t source_row = rows.begin[row] + k - rows.offset[row];
      for (int64_t s = 0; s < segments; ++s) {
        const T* source = pixels + (s * image.height + source_row) * segment;
        accumulate(line + s * segment, source, rows.weights[static_cast<size_t>(k)], segment);
      }
    }
    for (int64_t c = 0; c < 3; ++c) {
      const int64_t channel = image.channels == 1 ? 0 : c;
      const float* const from = line + (planar ? channel * segment : channel);
      float* const out = output + (c * size + y) * size;
      for (int64_t x = 0; x < size; ++x) {
        const auto column = static_cast<size_t>(x);
        const float* const weights = columns.weights.data() + columns.offset[column];
        const int64_t count = columns.offset[column + 1] - columns.offset[column];
        const float* const source = from + columns.begin[column] * step;
        float sum = 0.0F;
        for (int64_t k = 0; k < count; ++k) sum += weights[k] * source[k * step];
        out[x] = sum;
      }
    }
  }
}

}  // namespace

void resample(const ImageView& image, const CropPlan& plan, int64_t size, TransformScratch& scratch, float* output) {
  require(image.channels == 1 || image.channels == 3, "an image of {} channels", image.channels);
  for (const auto& [map, length] : {std::pair(plan.rows, image.height), std::pair(plan.columns, image.width)}) {
    require(map.extent > 0 && map.target > 0 && map.begin >= 0 && map.begin + map.extent <= length,
            "a crop [{}, {}) of {} pixels", map.begin, map.begin + map.extent, length);
  }
  build_axis(plan.rows, size, scratch.rows);
  build_axis(plan.columns, size, scratch.columns);
  if (image.u8 != nullptr) {
    resample_lines(image, image.u8, size, scratch, output);
  } else {
    resample_lines(image, image.f32, size, scratch, output);
  }
}

}  // namespace lockstep
