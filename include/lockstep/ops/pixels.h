// Changes of images that the loader makes on a CPU and the operation PreparePixels on a GPU, and the formula that both
// share: a constant expression, because those compile for a GPU as well.
#pragma once

#include <algorithm>
#include <cstdint>

namespace lockstep {

// Random changes of brightness, contrast, saturation and hue, as Inception's training does them.
struct ColorDistortion {
  float contrast_first = 0.0F;  // not 0: before saturation and hue, not after them; brightness always comes first
  float brightness = 0.0F;      // added
  float saturation = 1.0F;      // factor
  float hue = 0.0F;             // added, in turns of the color circle
  float contrast = 1.0F;        // factor of the distance from each channel's mean
};

// The random changes of one image, a row of floats in the batch.
struct ImageChanges {
  float mirrored = 0.0F;  // not 0: left and right are exchanged
  ColorDistortion color;
};
inline constexpr int64_t kImageChanges = sizeof(ImageChanges) / sizeof(float);

// Scales the saturation of a pixel (at most to 1) and rotates its hue by `turn` sixths of the circle. It has selects
// instead of branches, so that loops over pixels vectorize.
template <class T>
constexpr void change_saturation_and_hue(T saturation, T turn, T& red, T& green, T& blue) {
  const T r = red, g = green, b = blue;
  const T value = std::max(r, std::max(g, b));
  const T range = value - std::min(r, std::min(g, b));
  const T unit = range > T(0) ? T(1) / range : T(0);
  // The hue is in sixths of the circle, in [-1, 5).
  T sector = T(4) + (r - g) * unit;
  sector = value == g ? T(2) + (b - r) * unit : sector;
  sector = value == r ? (g - b) * unit : sector;
  // Saturation is range / value. It has no meaning if the brightness has made the value negative.
  const T new_range = value > T(0) ? std::min(range * saturation, value) : T(0);
  const auto channel = [&](T shift) {
    T place = sector + turn + shift;  // in (-3, 12)
    place = place < T(0) ? place + T(6) : place;
    place = place >= T(6) ? place - T(6) : place;
    place = place >= T(6) ? place - T(6) : place;
    const T away = std::min(place, T(4) - place);
    return value - new_range * (away < T(0) ? T(0) : T(1) < away ? T(1) : away);
  };
  red = channel(T(5));
  green = channel(T(3));
  blue = channel(T(1));
}

}  // namespace lockstep
