#include "data/image/color_distortion.h"

#include <algorithm>
#include <array>

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

void change_saturation_and_hue(float saturation, float hue, float* image, int64_t pixels) {
  float* const red = image;
  float* const green = image + pixels;
  float* const blue = image + 2 * pixels;
  const float turn = 6.0F * hue;
  for (int64_t i = 0; i < pixels; ++i) lockstep::change_saturation_and_hue(saturation, turn, red[i], green[i], blue[i]);
}

}  // namespace

ColorDistortion draw_color_distortion(RandomStream& random) {
  ColorDistortion distortion;
  distortion.contrast_first = (random.bits() >> 63) != 0 ? 1.0F : 0.0F;
  distortion.brightness = static_cast<float>(random.uniform(-32.0 / 255.0, 32.0 / 255.0));
  distortion.saturation = static_cast<float>(random.uniform(0.5, 1.5));
  distortion.hue = static_cast<float>(random.uniform(-0.2, 0.2));
  distortion.contrast = static_cast<float>(random.uniform(0.5, 1.5));
  return distortion;
}

void distort_color(const ColorDistortion& distortion, float* image, int64_t pixels) {
  for (int64_t i = 0; i < 3 * pixels; ++i) image[i] += distortion.brightness;
  if (distortion.contrast_first != 0.0F) change_contrast(distortion.contrast, image, pixels);
  change_saturation_and_hue(distortion.saturation, distortion.hue, image, pixels);
  if (distortion.contrast_first == 0.0F) change_contrast(distortion.contrast, image, pixels);
  for (int64_t i = 0; i < 3 * pixels; ++i) image[i] = std::clamp(image[i], 0.0F, 1.0F);
}

}  // namespace lockstep
