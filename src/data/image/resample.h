// Cropping, padding, mirroring and bilinear resizing of an image in one go.
#pragma once

#include <cstdint>

#include "lockstep/data/image/augment.h"

namespace lockstep {

// How the output is read along one axis: source elements [begin, begin + extent) are stretched to `target` positions,
// of which `first`, first + 1, ... become the output. Positions outside [0, target) are black.
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

// The part of the source, or of the source made `shrink` times smaller, that resample() reads; at least one pixel.
ImageWindow window_of(const CropPlan& plan, const OutputSize& size, int64_t shrink = 1);

// How much smaller the source may be decoded: 1, 2, 4 or 8, so that what is left of the crop has at least
// kShrunkSpare times the output's size on either axis, and resampling still has something to average.
inline constexpr double kShrunkSpare = 1.5;
int64_t shrink_of(const CropPlan& plan);

// Writes [3,size.height,size.width] in the source's units. The plan is in pixels of the whole picture; where the
// image's window is of a smaller one, the pixels on the crop's edge may lie partly outside the crop.
void resample(const ImageView& image, const CropPlan& plan, const OutputSize& size, TransformScratch& scratch,
              float* output);

}  // namespace lockstep
