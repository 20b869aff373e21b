// The decoders behind decode_image(), one a library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/data/decode.h"

namespace lockstep {

// Both throw BadRecord, without the sample's place.
void decode_jpeg(std::span<const std::byte> encoded, Image& image);
void decode_png(std::span<const std::byte> encoded, Image& image);

// Sizes `image` for [height,width,3]; throws BadRecord for sizes that no photograph has, before memory is asked for.
void size_image(int64_t height, int64_t width, Image& image);

}  // namespace lockstep
