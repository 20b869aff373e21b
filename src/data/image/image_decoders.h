// The decoders that decode_image() uses, one per library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/data/image/decode.h"

namespace lockstep {

// Both throw BadRecord, whose message does not name the sample.
void decode_jpeg(std::span<const std::byte> encoded, Image& image, const ChooseWindow& choose,
                 const DecodeLimits& limits);
void decode_png(std::span<const std::byte> encoded, Image& image, const DecodeLimits& limits);

// Throws BadRecord for a picture without pixels or with too many. Called before memory is allocated.
void check_size(int64_t height, int64_t width, const DecodeLimits& limits);

// Sets the sizes of `image` for a whole picture, and allocates its pixels.
void size_image(int64_t height, int64_t width, Image& image);

}  // namespace lockstep
