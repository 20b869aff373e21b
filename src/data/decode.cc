#include "lockstep/data/decode.h"

#include <algorithm>
#include <string_view>

#include "data/image_decoders.h"
#include "lockstep/data/data_source.h"

namespace lockstep {
namespace {

constexpr int64_t kMaxPixels = 1 << 27;  // 134 million: above any camera, below what a damaged header can ask for

// What the bytes look like when they are neither JPEG nor PNG.
std::string_view name_type(std::string_view text) {
  using namespace std::string_view_literals;
  if (text.empty()) return "empty";
  if (text.starts_with("GIF8")) return "a GIF image";
  if (text.starts_with("BM")) return "a BMP image";
  if (text.starts_with("RIFF") && text.substr(0, 12).ends_with("WEBP")) return "a WebP image";
  if (text.starts_with("II*") || text.starts_with("MM\0*"sv)) return "a TIFF image";
  const size_t begin = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  if (begin != std::string_view::npos && text[begin] == '<') return "an HTML or XML page";
  return "of unknown type";
}

}  // namespace

void check_size(int64_t height, int64_t width) {
  if (height < 1 || width < 1 || height > kMaxPixels / width) {
    throw BadRecord(fmt::format("an image of {} x {} pixels", width, height));
  }
}

void size_image(int64_t height, int64_t width, Image& image) {
  check_size(height, width);
  image.height = height;
  image.width = width;
  image.window = {.height = height, .width = width};
  image.pixels.resize(static_cast<size_t>(height * width * 3));
}

void decode_image(std::span<const std::byte> encoded, Image& image, const ChooseWindow& choose) {
  using namespace std::string_view_literals;
  const std::string_view text(reinterpret_cast<const char*>(encoded.data()), std::min<size_t>(encoded.size(), 64));
  if (text.starts_with("\xff\xd8\xff"sv)) return decode_jpeg(encoded, image, choose);
  if (text.starts_with("\x89PNG\r\n\x1a\n"sv)) return decode_png(encoded, image);
  throw BadRecord(fmt::format("the image is {}, where JPEG or PNG is needed", name_type(text)));
}

}  // namespace lockstep
