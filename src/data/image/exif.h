// The orientation that cameras store in a JPEG instead of rotating its pixels.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/data/image/decode.h"

namespace lockstep {

// Returns the EXIF orientation, 1 to 8; 1 (upright) if the file has none or it cannot be read.
int exif_orientation(std::span<const std::byte> encoded);

// Rotates and mirrors a whole picture so that it is upright. `scratch` keeps its memory for the next picture.
void make_upright(int orientation, Image& image, std::vector<uint8_t>& scratch);

}  // namespace lockstep
