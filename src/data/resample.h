// Cropping, padding, mirroring and bilinear resizing of an image in one go.
#pragma once

#include <cstdint>

#include "lockstep/data/augment.h"

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

// The part of the source that resample() reads; at least one pixel.
ImageWindow window_of(const CropPlan& plan, int64_t size);

// Writes [3,size,size] in the source's units.
void resample(const ImageView& image, const CropPlan& plan, int64_t size, TransformScratch& scratch, float* output);

}  // namespace lockstep
