#include "lockstep/data/image/decode.h"

#include <algorithm>
#include <new>
#include <string_view>

#include "data/image/image_decoders.h"
#include "data/source/file_kind.h"
#include "lockstep/data/source/data_source.h"

namespace lockstep {

void check_size(int64_t height, int64_t width, const DecodeLimits& limits) {
  if (height < 1 || width < 1) throw BadRecord(fmt::format("an image of {} x {} pixels", width, height));
  if (height <= limits.max_pixels / width) return;
  throw BadRecord(
      fmt::format("an image of {} x {} pixels, but data.max_pixels allows {}: raise it if there is the memory, or "
                  "make the picture smaller",
                  width, height, limits.max_pixels));
}

void size_image(int64_t height, int64_t width, Image& image) {
  image.height = height;
  image.width = width;
  image.window = {.height = height, .width = width};
  image.pixels.resize(static_cast<size_t>(height * width * 3));
}

void decode_image(std::span<const std::byte> encoded, Image& image, const ChooseWindow& choose,
                  const DecodeLimits& limits) {
  using namespace std::string_view_literals;
  const std::string_view text(reinterpret_cast<const char*>(encoded.data()), std::min<size_t>(encoded.size(), 8));
  try {
    if (text.starts_with("\xff\xd8\xff"sv)) return decode_jpeg(encoded, image, choose, limits);
    if (text.starts_with("\x89PNG\r\n\x1a\n"sv)) return decode_png(encoded, image, limits);
  } catch (const std::bad_alloc&) {
    throw BadRecord("there is not enough memory to decode it");
  }
  const std::string_view kind = name_file_kind(encoded);
  throw BadRecord(
      fmt::format("the image is {}, where JPEG or PNG is needed", kind.empty() ? "of unknown type"sv : kind));
}

}  // namespace lockstep
