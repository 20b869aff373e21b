#include "data/image/exif.h"

#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using namespace std::string_view_literals;

// Reads numbers of a TIFF block in its byte order; beyond the end they are 0.
class TiffReader {
 public:
  explicit TiffReader(std::string_view block) : block_(block), big_endian_(block.starts_with("MM")) {}

  size_t number(size_t at, size_t bytes) const {
    if (at > block_.size() || bytes > block_.size() - at) return 0;
    size_t value = 0;
    for (size_t i = 0; i < bytes; ++i) {
      const auto byte = static_cast<unsigned char>(block_[at + (big_endian_ ? i : bytes - 1 - i)]);
      value = value << 8 | byte;
    }
    return value;
  }

 private:
  std::string_view block_;
  bool big_endian_;
};

int orientation_of(std::string_view tiff) {
  constexpr size_t kEntryBytes = 12, kOrientation = 0x0112, kShort = 3;
  const TiffReader reader(tiff);
  const size_t directory = reader.number(4, 4);
  const size_t entries = reader.number(directory, 2);
  for (size_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + i * kEntryBytes;
    if (reader.number(entry, 2) != kOrientation || reader.number(entry + 2, 2) != kShort) continue;
    const size_t value = reader.number(entry + 8, 2);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

}  // namespace

int exif_orientation(std::span<const std::byte> encoded) {
  std::string_view left(reinterpret_cast<const char*>(encoded.data()), encoded.size());
  if (!left.starts_with("\xff\xd8"sv)) return 1;
  left.remove_prefix(2);
  constexpr char kExifSegment = '\xe1', kScan = '\xda';
  while (left.size() >= 4 && left[0] == '\xff' && left[1] != kScan) {
    const size_t length = static_cast<unsigned char>(left[2]) * 256U + static_cast<unsigned char>(left[3]);
    if (length < 2 || length + 2 > left.size()) return 1;
    const std::string_view segment = left.substr(4, length - 2);
    if (left[1] == kExifSegment && segment.starts_with("Exif\0\0"sv)) return orientation_of(segment.substr(6));
    left.remove_prefix(length + 2);
  }
  return 1;
}

void make_upright(int orientation, Image& image, std::vector<uint8_t>& scratch) {
  if (orientation == 1) return;
  const int64_t height = image.height, width = image.width;
  require(image.window == ImageWindow{.height = height, .width = width}, "a part of a picture cannot be turned");
  const bool turned = orientation >= 5;
  image.height = turned ? width : height;
  image.width = turned ? height : width;
  image.window = {.height = image.height, .width = image.width};
  // For each orientation, the axes along which the stored picture is read backwards.
  const bool up = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool left = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  scratch.resize(image.pixels.size());
  uint8_t* to = scratch.data();
  for (int64_t y = 0; y < image.height; ++y) {
    for (int64_t x = 0; x < image.width; ++x, to += 3) {
      const int64_t row = turned ? x : y, column = turned ? y : x;
      const int64_t from = (up ? height - 1 - row : row) * width + (left ? width - 1 - column : column);
      for (int64_t c = 0; c < 3; ++c) to[c] = image.pixels[3 * from + c];
    }
  }
  image.pixels.swap(scratch);
}

}  // namespace lockstep
