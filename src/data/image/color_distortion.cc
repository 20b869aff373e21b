#include "data/image/color_distortion.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep {
namespace {

// Adds in eight partial sums: a fixed order that the compiler can vectorize.
float mean(const float* values, int64_t count) {
  std::array<double, 8> strands = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int64_t k = 0; k < 8; ++k) strands[k] += values[i + k];
  }
  for (; i < count; ++i) strands[0] += values[i];
  double sum = 0.0;
  for (const double strand : strands) sum += strand;
  return static_cast<float>(sum / static_cast<double>(count));
}

void change_contrast(float factor, float* image, int64_t pixels) {
  for (int64_t c = 0; c < 3; ++c) {
    float* const plane = image + c * pixels;
    const float center = mean(plane, pixels);
    for (int64_t i = 0; i < pixels; ++i) plane[i] = (plane[i] - center) * factor + center;
  }
}

// Scales the saturation (at most to 1) and rotates the hue in one pass. It has selects instead of branches, so that it
// vectorizes.
void change_saturation_and_hue(float saturation, float hue, float* image, int64_t pixels) {
  float* const red = image;
  float* const green = image + pixels;
  float* const blue = image + 2 * pixels;
  const float turn = 6.0F * hue;
  for (int64_t i = 0; i < pixels; ++i) {
    const float r = red[i];
    const float g = green[i];
    const float b = blue[i];
    const float value = std::max(r, std::max(g, b));
    const float range = value - std::min(r, std::min(g, b));
    const float unit = range > 0.0F ? 1.0F / range : 0.0F;
    // The hue is in sixths of the circle, in [-1, 5).
    float sector = 4.0F + (r - g) * unit;
    sector = value == g ? 2.0F + (b - r) * unit : sector;
    sector = value == r ? (g - b) * unit : sector;
    // Saturation is range / value. It has no meaning if the brightness has made the value negative.
    const float new_range = value > 0.0F ? std::min(range * saturation, value) : 0.0F;
    const auto channel = [&](float shift) {
      float place = sector + turn + shift;  // in (-3, 12)
      place = place < 0.0F ? place + 6.0F : place;
      place = place >= 6.0F ? place - 6.0F : place;
      place = place >= 6.0F ? place - 6.0F : place;
      const float away = std::min(place, 4.0F - place);
      return value - new_range * std::clamp(away, 0.0F, 1.0F);
    };
    red[i] = channel(5.0F);
    green[i] = channel(3.0F);
    blue[i] = channel(1.0F);
  }
}

}  // namespace

ColorDistortion draw_color_distortion(RandomStream& random) {
  ColorDistortion distortion;
  distortion.contrast_first = (random.bits() >> 63) != 0;
  distortion.brightness = static_cast<float>(random.uniform(-32.0 / 255.0, 32.0 / 255.0));
  distortion.saturation = static_cast<float>(random.uniform(0.5, 1.5));
  distortion.hue = static_cast<float>(random.uniform(-0.2, 0.2));
  distortion.contrast = static_cast<float>(random.uniform(0.5, 1.5));
  return distortion;
}

void distort_color(const ColorDistortion& distortion, float* image, int64_t pixels) {
  for (int64_t i = 0; i < 3 * pixels; ++i) image[i] += distortion.brightness;
  if (distortion.contrast_first) change_contrast(distortion.contrast, image, pixels);
  change_saturation_and_hue(distortion.saturation, distortion.hue, image, pixels);
  if (!distortion.contrast_first) change_contrast(distortion.contrast, image, pixels);
  for (int64_t i = 0; i < 3 * pixels; ++i) image[i] = std::clamp(image[i], 0.0F, 1.0F);
}

}  // namespace lockstep
