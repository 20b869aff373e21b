// Crops, pads, mirrors and resizes an image (bilinear) in one pass.
#pragma once

#include <cstdint>

#include "lockstep/data/image/augment.h"

namespace lockstep {

// The map of one axis: source elements [begin, begin + extent) are resized to `target` positions, of which `first`,
// first + 1, ... become the output. Positions outside [0, target) are black.
struct AxisMap {
  int64_t begin = 0;
  int64_t extent = 1;  // at least 1
  int64_t target = 1;  // at least 1
  int64_t first = 0;
  bool mirror = false;
  bool operator==(const AxisMap&) const = default;
};

struct CropPlan {
  AxisMap rows;
  AxisMap columns;
  bool operator==(const CropPlan&) const = default;
};

struct OutputSize {
  int64_t height = 1;
  int64_t width = 1;
  bool operator==(const OutputSize&) const = default;
};

// Returns the part that resample() reads of the source, or of the source reduced by `shrink`; at least one pixel.
ImageWindow window_of(const CropPlan& plan, const OutputSize& size, int64_t shrink = 1);

// Returns the factor by which the source may be reduced when it is decoded: 1, 2, 4 or 8. On either axis, the reduced
// crop has at least kShrunkSpare times the size of the output, so that resampling still averages.
inline constexpr double kShrunkSpare = 1.5;
int64_t shrink_of(const CropPlan& plan);

// Writes [3,size.height,size.width] in the units of the source. The plan is in pixels of the whole picture; if the
// window of the image is reduced, pixels at the edge of the crop may be partly outside of it.
void resample(const ImageView& image, const CropPlan& plan, const OutputSize& size, TransformScratch& scratch,
              float* output);
// Writes [size.height,size.width,3], rounded; the image has bytes.
void resample(const ImageView& image, const CropPlan& plan, const OutputSize& size, TransformScratch& scratch,
              uint8_t* output);

}  // namespace lockstep
