// Random changes of brightness, contrast, saturation and hue, as Inception's training does them.
#pragma once

#include <cstdint>

#include "lockstep/base/random.h"
#include "lockstep/ops/pixels.h"

namespace lockstep {

// Brightness +-32/255, saturation and contrast 0.5-1.5, hue +-0.2; the two orders equally often.
ColorDistortion draw_color_distortion(RandomStream& random);

// Changes `image` [3,pixels] of values 0..1 in place and clips the result to [0,1].
void distort_color(const ColorDistortion& distortion, float* image, int64_t pixels);

}  // namespace lockstep
