// libpng reports errors by a longjmp to the method that called it. Such methods own nothing, so no destructor is
// skipped.
#include <png.h>

#include <csetjmp>
#include <cstring>

#include "data/image/image_decoders.h"
#include "lockstep/base/printable.h"
#include "lockstep/data/source/data_source.h"

namespace lockstep {
namespace {

constexpr size_t kSignatureBytes = 8;
constexpr int64_t kMaxDeflateRatio = 1032;  // bytes that one byte of a zlib stream can become

// The facts of a PNG that are known without decoding.
struct PngOutline {
  int64_t height = 0;
  int64_t width = 0;
  int64_t bits_per_pixel = 0;
  int64_t data_bytes = 0;  // of all IDAT chunks
};

uint32_t big_endian(std::span<const std::byte> bytes) {
  uint32_t value = 0;
  for (const std::byte byte : bytes.first(4)) value = value << 8 | std::to_integer<uint32_t>(byte);
  return value;
}

int64_t bits_of(std::span<const std::byte> header) {
  constexpr int64_t kChannels[] = {1, 0, 3, 1, 2, 0, 4};  // by color type
  const auto depth = std::to_integer<int64_t>(header[8]);
  const auto type = std::to_integer<size_t>(header[9]);
  return depth * (type < std::size(kChannels) ? kChannels[type] : 0);
}

// Walks the chunks up to IEND. A chunk that declares more bytes than there are is a bad record.
PngOutline outline(std::span<const std::byte> encoded) {
  constexpr size_t kChunkHead = 8, kChunkCrc = 4, kHeaderBytes = 13;
  PngOutline found;
  std::span<const std::byte> left = encoded.subspan(kSignatureBytes);
  while (left.size() >= kChunkHead) {
    const uint64_t length = big_endian(left);
    const std::string_view type(reinterpret_cast<const char*>(left.data()) + 4, 4);
    left = left.subspan(kChunkHead);
    if (length + kChunkCrc > left.size()) {
      throw BadRecord(fmt::format("damaged PNG: the file is cut off: its chunk {} declares {} bytes, but {} are left",
                                  printable(type), length, left.size()));
    }
    if (type == "IHDR" && length == kHeaderBytes && found.width == 0) {
      found.width = big_endian(left);
      found.height = big_endian(left.subspan(4));
      found.bits_per_pixel = bits_of(left);
    }
    if (type == "IDAT") found.data_bytes += static_cast<int64_t>(length);
    left = left.subspan(static_cast<size_t>(length) + kChunkCrc);
    if (type == "IEND") return found;
  }
  throw BadRecord("damaged PNG: the file is cut off");
}

// The last comparison cannot overflow: check_size() limits the pixels, and a pixel has at most 64 bits.
void check_outline(const PngOutline& found, const DecodeLimits& limits) {
  check_size(found.height, found.width, limits);
  const int64_t row_bytes = (found.width * found.bits_per_pixel + 7) / 8;
  if (row_bytes * found.height / kMaxDeflateRatio <= found.data_bytes) return;
  throw BadRecord(fmt::format("damaged PNG: {} bytes of data cannot hold {} x {} pixels", found.data_bytes, found.width,
                              found.height));
}

class PngReader {
 public:
  explicit PngReader(std::span<const std::byte> encoded) : left_(encoded) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
    require(png_ != nullptr, "libpng has no memory");
    info_ = png_create_info_struct(png_);
    // Only the chunks of the picture are read. Texts, profiles and similar chunks are not used, and may be very large
    // after decompression.
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_set_chunk_malloc_max(png_, encoded.size());
    png_set_chunk_cache_max(png_, 1);
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // check_size() limits the number of pixels instead
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  // Reads the header and requests 8-bit RGB. Returns false on failure; see error().
  bool start() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_read_fn(png_, this, on_read);
    png_read_info(png_, info_);
    png_set_palette_to_rgb(png_);
    png_set_expand_gray_1_2_4_to_8(png_);
    png_set_scale_16(png_);
    png_set_strip_alpha(png_);
    png_set_gray_to_rgb(png_);
    passes_ = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }

  bool read(uint8_t* pixels, size_t stride) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    for (int pass = 0; pass < passes_; ++pass) {
      for (png_uint_32 y = 0; y < png_get_image_height(png_, info_); ++y) {
        png_read_row(png_, pixels + y * stride, nullptr);
      }
    }
    png_read_end(png_, nullptr);
    return true;
  }

  int64_t height() const { return png_get_image_height(png_, info_); }
  int64_t width() const { return png_get_image_width(png_, info_); }
  size_t row_bytes() const { return png_get_rowbytes(png_, info_); }
  const char* error() const { return error_; }

 private:
  [[noreturn]] static void on_error(png_structp png, png_const_charp text) {
    auto* self = static_cast<PngReader*>(png_get_error_ptr(png));
    std::strncpy(self->error_, text, sizeof self->error_ - 1);
    png_longjmp(png, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}
  static void on_read(png_structp png, png_bytep out, size_t count) {
    auto* self = static_cast<PngReader*>(png_get_io_ptr(png));
    if (count > self->left_.size()) png_error(png, "the file is cut off");
    std::memcpy(out, self->left_.data(), count);
    self->left_ = self->left_.subspan(count);
  }

  std::span<const std::byte> left_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  int passes_ = 1;
  char error_[128] = {};
};

}  // namespace

void decode_png(std::span<const std::byte> encoded, Image& image, const DecodeLimits& limits) {
  check_outline(outline(encoded), limits);
  PngReader reader(encoded);
  if (!reader.start()) throw BadRecord(fmt::format("damaged PNG: {}", printable(reader.error())));
  check_size(reader.height(), reader.width(), limits);
  size_image(reader.height(), reader.width(), image);
  const size_t stride = static_cast<size_t>(image.width) * 3;
  require(reader.row_bytes() == stride, "a PNG row of {} bytes for {} pixels", reader.row_bytes(), image.width);
  if (!reader.read(image.pixels.data(), stride)) {
    throw BadRecord(fmt::format("damaged PNG: {}", printable(reader.error())));
  }
}

}  // namespace lockstep
