// The decoders behind decode_image(), one a library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/data/image/decode.h"

namespace lockstep {

// Both throw BadRecord, without the sample's place.
void decode_jpeg(std::span<const std::byte> encoded, Image& image, const ChooseWindow& choose,
                 const DecodeLimits& limits);
void decode_png(std::span<const std::byte> encoded, Image& image, const DecodeLimits& limits);

// Throws BadRecord for a picture without pixels or with too many, before memory is asked for.
void check_size(int64_t height, int64_t width, const DecodeLimits& limits);

// Sizes `image` for a whole picture.
void size_image(int64_t height, int64_t width, Image& image);

}  // namespace lockstep
