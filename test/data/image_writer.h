// Encodes small images, for tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct JpegOptions {
  int components = 3;  // 1: gray, 3: RGB, 4: CMYK
  bool ycck = false;   // four components stored as YCCK
  bool adobe = true;   // four components: with Adobe's marker
  bool progressive = false;
  bool arithmetic = false;
};

// Pixels interleaved, `components` bytes each, at quality 95.
std::string encode_jpeg(const std::vector<uint8_t>& pixels, int height, int width, const JpegOptions& options);

struct PngOptions {
  int color_type = 2;  // libpng's: 0 gray, 2 RGB, 3 palette, 4 gray + alpha, 6 RGBA
  int bit_depth = 8;
  bool interlaced = false;
  std::vector<uint8_t> palette;  // RGB triples
  bool palette_alpha = false;    // adds transparency to the palette's first entry
};

// Rows as libpng takes them: packed below 8 bits, big-endian at 16.
std::string encode_png(const std::vector<uint8_t>& rows, int height, int width, const PngOptions& options);

// A PNG of one color.
std::string flat_png(int height, int width, uint8_t red, uint8_t green, uint8_t blue);

}  // namespace lockstep
