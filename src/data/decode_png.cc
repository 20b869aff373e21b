// libpng reports errors by a jump to the setjmp of the reader's method that called it; such methods own nothing, so no
// destructor is jumped over.
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <string>

#include "data/image_decoders.h"
#include "lockstep/data/data_source.h"

namespace lockstep {
namespace {

class PngReader {
 public:
  explicit PngReader(std::span<const std::byte> encoded) : left_(encoded) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
    require(png_ != nullptr, "libpng has no memory");
    info_ = png_create_info_struct(png_);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  // Reads the header and asks for 8-bit RGB. False: see error().
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

void decode_png(std::span<const std::byte> encoded, Image& image) {
  PngReader reader(encoded);
  if (!reader.start()) throw BadRecord(fmt::format("damaged PNG: {}", reader.error()));
  size_image(reader.height(), reader.width(), image);
  const size_t stride = static_cast<size_t>(image.width) * 3;
  require(reader.row_bytes() == stride, "a PNG row of {} bytes for {} pixels", reader.row_bytes(), image.width);
  if (!reader.read(image.pixels.data(), stride)) throw BadRecord(fmt::format("damaged PNG: {}", reader.error()));
}

}  // namespace lockstep
