// Random changes of brightness, contrast, saturation and hue, as Inception's training does them.
#pragma once

#include <cstdint>

#include "lockstep/base/random.h"

namespace lockstep {

struct ColorDistortion {
  bool contrast_first = false;  // before saturation and hue, or after them; brightness always comes first
  float brightness = 0.0F;      // added
  float saturation = 1.0F;      // factor
  float hue = 0.0F;             // added, in turns of the color circle
  float contrast = 1.0F;        // factor of the distance from each channel's mean
};

// Brightness +-32/255, saturation and contrast 0.5-1.5, hue +-0.2; the two orders equally often.
ColorDistortion draw_color_distortion(RandomStream& random);

// Changes `image` [3,pixels] of values 0..1 in place and clips the result to [0,1].
void distort_color(const ColorDistortion& distortion, float* image, int64_t pixels);

}  // namespace lockstep
