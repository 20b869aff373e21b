// Decodes images to 8-bit RGB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace lockstep {

// A part of a picture, in pixels of the picture made `shrink` times smaller (its size rounded up).
struct ImageWindow {
  int64_t top = 0, left = 0;
  int64_t height = 0, width = 0;
  int64_t shrink = 1;  // 1, 2, 4 or 8
  bool operator==(const ImageWindow&) const = default;
};

// Returns which part of a picture is needed, once its size is known.
using ChooseWindow = std::function<ImageWindow(int64_t height, int64_t width)>;

// The limits of a picture.
inline constexpr int64_t kUsualMaxPixels = int64_t{1} << 27;  // 134 million: above any camera
struct DecodeLimits {
  int64_t max_pixels = kUsualMaxPixels;  // height x width of the whole picture (data.max_pixels)
};

// A decoded picture, or a window of one. Reused by worker threads, so that decoding allocates only for a larger image.
struct Image {
  int64_t height = 0;  // of the whole picture
  int64_t width = 0;
  ImageWindow window;           // what `pixels` holds
  std::vector<uint8_t> pixels;  // [window.height,window.width,3], interleaved
};

// Decodes a JPEG or PNG, distinguished by the first bytes, not by the name of the file. Everything becomes 8-bit RGB:
// gray is copied to three channels, CMYK and YCCK are converted (Adobe's inverted form too), palettes expanded, 16-bit
// samples scaled, alpha dropped. EXIF orientation is ignored here (see data/image/exif.h). Throws BadRecord, without
// the sample's position, for anything else, such as truncated files, pictures above the limits, and those that declare
// more pixels than their bytes can hold, so that n bytes never take more memory than 8 kB x n (JPEG; 64 times that with
// arithmetic coding) or 26 kB x n (PNG).
//
// With `choose`, only that window of a JPEG and a margin around it may be decoded, with the same values as in a full
// decode; a file that ends too soon is still bad. A window with a shrink is decoded directly at that size, from the low
// frequencies alone; PNG and CMYK ignore it, so `image.window` says what was decoded. Thread-safe; prints nothing.
void decode_image(std::span<const std::byte> encoded, Image& image, const ChooseWindow& choose = {},
                  const DecodeLimits& limits = {});

}  // namespace lockstep
