#include "data/image/color_distortion.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "test/catch.h"

using namespace lockstep;

namespace {

using Pixel = std::array<float, 3>;

Pixel distort(Pixel pixel, const ColorDistortion& distortion) {
  distort_color(distortion, pixel.data(), 1);
  return pixel;
}

void check_close(const Pixel& a, const Pixel& b) {
  for (size_t c = 0; c < 3; ++c) CHECK(std::abs(a[c] - b[c]) < 1e-5F);
}

// Hue, saturation, value by the textbook, hue in turns.
Pixel to_hsv(const Pixel& p) {
  const float value = std::max({p[0], p[1], p[2]});
  const float range = value - std::min({p[0], p[1], p[2]});
  float hue = 0.0F;
  if (range > 0.0F) {
    if (value == p[0])
      hue = (p[1] - p[2]) / range;
    else if (value == p[1])
      hue = 2.0F + (p[2] - p[0]) / range;
    else
      hue = 4.0F + (p[0] - p[1]) / range;
  }
  hue /= 6.0F;
  return {hue - std::floor(hue), value > 0.0F ? range / value : 0.0F, value};
}

Pixel from_hsv(const Pixel& hsv) {
  const float place = hsv[0] * 6.0F;
  const float sector = std::floor(place);
  const float part = place - sector;
  const float v = hsv[2];
  const float p = v * (1.0F - hsv[1]);
  const float q = v * (1.0F - hsv[1] * part);
  const float t = v * (1.0F - hsv[1] * (1.0F - part));
  switch (static_cast<int>(sector) % 6) {
    case 0:
      return {v, t, p};
    case 1:
      return {q, v, p};
    case 2:
      return {p, v, t};
    case 3:
      return {p, q, v};
    case 4:
      return {t, p, v};
    default:
      return {v, p, q};
  }
}

}  // namespace

TEST_CASE("no distortion changes nothing") {
  check_close(distort({0.2F, 0.7F, 0.4F}, {}), {0.2F, 0.7F, 0.4F});
  check_close(distort({0.0F, 0.0F, 0.0F}, {}), {0.0F, 0.0F, 0.0F});
  check_close(distort({1.0F, 1.0F, 1.0F}, {}), {1.0F, 1.0F, 1.0F});
}

TEST_CASE("a third of a turn of hue moves red to green to blue") {
  check_close(distort({0.9F, 0.1F, 0.1F}, {.hue = 1.0F / 3.0F}), {0.1F, 0.9F, 0.1F});
  check_close(distort({0.1F, 0.9F, 0.1F}, {.hue = 1.0F / 3.0F}), {0.1F, 0.1F, 0.9F});
  check_close(distort({0.9F, 0.1F, 0.1F}, {.hue = -1.0F / 3.0F}), {0.1F, 0.1F, 0.9F});
}

TEST_CASE("hue and saturation agree with the textbook's conversion there and back") {
  RandomStream random(3);
  for (int i = 0; i < 5000; ++i) {
    const Pixel pixel = {static_cast<float>(random.unit()), static_cast<float>(random.unit()),
                         static_cast<float>(random.unit())};
    const ColorDistortion distortion = {.saturation = static_cast<float>(random.uniform(0.5, 1.5)),
                                        .hue = static_cast<float>(random.uniform(-0.2, 0.2))};
    Pixel hsv = to_hsv(pixel);
    hsv[0] += distortion.hue;
    hsv[0] -= std::floor(hsv[0]);
    hsv[1] = std::min(1.0F, hsv[1] * distortion.saturation);
    const Pixel expected = from_hsv(hsv);
    const Pixel got = distort(pixel, distortion);
    for (size_t c = 0; c < 3; ++c) REQUIRE(std::abs(got[c] - expected[c]) < 1e-4F);
  }
}

TEST_CASE("contrast scales the distance from each channel's mean, and results are clipped to 0..1") {
  std::vector<float> image = {0.2F, 0.4F, 0.5F, 0.5F, 0.0F, 1.0F};  // two pixels, gray-like planes
  distort_color({.saturation = 1.0F, .contrast = 1.5F}, image.data(), 2);
  CHECK(image[0] == Approx(0.15F));
  CHECK(image[1] == Approx(0.45F));
  CHECK(image[2] == Approx(0.5F));
  CHECK(image[4] == 0.0F);
  CHECK(image[5] == 1.0F);
}

TEST_CASE("the two orders give different pictures, and both are drawn") {
  std::vector<float> image = {0.1F, 0.9F, 0.3F, 0.6F, 0.8F, 0.2F};
  std::vector<float> other = image;
  const ColorDistortion distortion = {.saturation = 1.5F, .hue = 0.1F, .contrast = 1.5F};
  distort_color(distortion, image.data(), 2);
  ColorDistortion reversed = distortion;
  reversed.contrast_first = true;
  distort_color(reversed, other.data(), 2);
  CHECK(image != other);

  int first = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    RandomStream random(random_key(seed));
    const ColorDistortion drawn = draw_color_distortion(random);
    first += drawn.contrast_first ? 1 : 0;
    REQUIRE(std::abs(drawn.brightness) <= 32.0F / 255.0F);
    REQUIRE(std::abs(drawn.hue) <= 0.2F);
    REQUIRE(std::abs(drawn.saturation - 1.0F) <= 0.5F);
    REQUIRE(std::abs(drawn.contrast - 1.0F) <= 0.5F);
  }
  CHECK(std::abs(first - 500) < 80);
}
