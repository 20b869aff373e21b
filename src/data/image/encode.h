// Encodes 8-bit RGB images, for `trainer pack`.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace lockstep {

// A picture to encode: [height,width,3], interleaved, owned by the caller.
struct RgbView {
  std::span<const uint8_t> pixels;
  int64_t height = 0;
  int64_t width = 0;
};

// Returns a baseline JPEG with halved color resolution, as in ImageNet. `quality` is libjpeg's, 1 to 100.
std::string encode_as_jpeg(const RgbView& picture, int quality);

std::string encode_as_png(const RgbView& picture);

}  // namespace lockstep
