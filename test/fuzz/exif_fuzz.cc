// The orientation in a JPEG's EXIF segment. Read as it is, and as the TIFF block of a segment with the right frame.
#include "data/image/exif.h"

#include <algorithm>
#include <vector>

#include "test/fuzz/targets.h"

namespace lockstep::fuzz {
namespace {

std::vector<std::byte> framed(Bytes tiff) {
  constexpr size_t kFrame = 8, kLongest = 0xffff - kFrame;
  const Bytes block = tiff.first(std::min(tiff.size(), kLongest));
  const size_t length = kFrame + block.size();
  const unsigned char head[] = {
      0xff, 0xd8, 0xff, 0xe1, static_cast<unsigned char>(length >> 8), static_cast<unsigned char>(length), 'E', 'x',
      'i',  'f',  0,    0};
  const auto bytes = std::as_bytes(std::span(head));
  std::vector<std::byte> file(bytes.begin(), bytes.end());
  file.insert(file.end(), block.begin(), block.end());
  return file;
}

void orient(Bytes encoded) {
  const int orientation = exif_orientation(encoded);
  require_law(orientation >= 1 && orientation <= 8, "EXIF knows eight orientations");
  Image image{.height = 2, .width = 3, .window = {.height = 2, .width = 3}, .pixels = std::vector<uint8_t>(18)};
  std::vector<uint8_t> scratch;
  make_upright(orientation, image, scratch);
  require_law(image.height * image.width == 6 && image.pixels.size() == 18, "a picture that is turned keeps its size");
}

}  // namespace

void exif(Bytes input) {
  orient(input);
  orient(framed(input));
}

}  // namespace lockstep::fuzz
