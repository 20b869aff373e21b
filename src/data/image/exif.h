// The orientation that cameras note in a JPEG instead of turning its pixels.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/data/image/decode.h"

namespace lockstep {

// 1 to 8 as EXIF numbers them; 1 (upright) where a file says nothing, or nothing that can be read.
int exif_orientation(std::span<const std::byte> encoded);

// Turns and mirrors a whole picture so that it is upright. `scratch` keeps its memory for the next picture.
void make_upright(int orientation, Image& image, std::vector<uint8_t>& scratch);

}  // namespace lockstep
