// Encoded images to 8-bit RGB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

// Pixels [H,W,3], interleaved. Reused by worker threads, so that decoding allocates only for a larger image.
struct Image {
  int64_t height = 0;
  int64_t width = 0;
  std::vector<uint8_t> pixels;
};

// Decodes a JPEG or PNG, told apart by the first bytes whatever the file was called. Everything becomes 8-bit RGB:
// gray is copied to three channels, CMYK and YCCK are converted (Adobe's inverted form too), palettes expanded, 16-bit
// samples scaled, alpha dropped. EXIF orientation is ignored in training and evaluation alike, as the published
// ImageNet recipes do. Throws BadRecord, without the sample's place, for anything else, truncated files among them.
// Any thread; prints nothing.
void decode_image(std::span<const std::byte> encoded, Image& image);

}  // namespace lockstep
