#include "data/image/encode.h"

#include <cmath>
#include <cstdlib>

#include "lockstep/data/image/decode.h"
#include "test/catch.h"

using namespace lockstep;

namespace {

std::vector<uint8_t> waves(int64_t height, int64_t width) {
  std::vector<uint8_t> pixels;
  for (int64_t i = 0; i < height * width * 3; ++i) {
    pixels.push_back(static_cast<uint8_t>(128 + 100 * std::sin(0.01 * static_cast<double>(i))));
  }
  return pixels;
}

Image decoded(const std::string& encoded) {
  Image image;
  decode_image(std::as_bytes(std::span(encoded)), image);
  return image;
}

}  // namespace

TEST_CASE("a PNG keeps every pixel, a JPEG nearly") {
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>{1, 1}, {7, 33}, {64, 48}}) {
    const auto pixels = waves(height, width);
    const RgbView view = {.pixels = pixels, .height = height, .width = width};
    CHECK(decoded(encode_as_png(view)).pixels == pixels);
    const Image image = decoded(encode_as_jpeg(view, 95));
    CHECK(image.height == height);
    REQUIRE(image.pixels.size() == pixels.size());
    for (size_t i = 0; i < pixels.size(); ++i) REQUIRE(std::abs(image.pixels[i] - pixels[i]) < 24);
  }
}

TEST_CASE("a lower quality makes a smaller JPEG") {
  const auto pixels = waves(64, 64);
  const RgbView view = {.pixels = pixels, .height = 64, .width = 64};
  CHECK(encode_as_jpeg(view, 30).size() < encode_as_jpeg(view, 95).size());
}

TEST_CASE("a picture of the wrong number of bytes is refused") {
  const auto pixels = waves(4, 4);
  CHECK_THROWS(encode_as_png({.pixels = pixels, .height = 4, .width = 5}));
}
