// 8-bit RGB to encoded images, for what `trainer pack` writes.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace lockstep {

// A picture to encode: [height,width,3], interleaved, owned by someone else.
struct RgbView {
  std::span<const uint8_t> pixels;
  int64_t height = 0;
  int64_t width = 0;
};

// A baseline JPEG with halved color, as cameras and ImageNet have it. `quality` is libjpeg's, 1 to 100.
std::string encode_as_jpeg(const RgbView& picture, int quality);

std::string encode_as_png(const RgbView& picture);

}  // namespace lockstep
