// What the targets of pictures share.
#pragma once

#include "lockstep/data/image/decode.h"
#include "test/fuzz/fuzz.h"

namespace lockstep::fuzz {

inline void require_window(const Image& image) {
  const auto pixels = static_cast<size_t>(image.window.height * image.window.width);
  require_law(image.height > 0 && image.width > 0 && pixels > 0, "a picture has pixels");
  require_law(image.pixels.size() == 3 * pixels, "a picture's pixels are those of its window");
}

// Few enough for the memory that a target may take (docs/fuzzing.md).
inline constexpr DecodeLimits kFuzzLimits{.max_pixels = 4'000'000};

// Decodes all of the picture, and a part of it as training does.
inline void decode_both_ways(Bytes encoded) {
  expect_answer([&] {
    Image image;
    decode_image(encoded, image, {}, kFuzzLimits);
    require_window(image);
  });
  expect_answer([&] {
    Image image;
    const auto middle = [](int64_t height, int64_t width) {
      return ImageWindow{.top = height / 4, .left = width / 4, .height = (height + 1) / 2, .width = (width + 1) / 2};
    };
    decode_image(encoded, image, middle, kFuzzLimits);
    require_window(image);
  });
}

}  // namespace lockstep::fuzz
