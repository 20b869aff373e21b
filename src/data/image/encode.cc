#include "data/image/encode.h"

#include <png.h>

#include <csetjmp>
#include <cstdlib>

#include "data/image/jpeg_errors.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

class JpegWriter {
 public:
  JpegWriter() {
    info_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = jump_out;
  }
  ~JpegWriter() {
    jpeg_destroy_compress(&info_);
    std::free(bytes_);
  }
  JpegWriter(const JpegWriter&) = delete;
  JpegWriter& operator=(const JpegWriter&) = delete;

  // Returns false on failure; see error().
  bool write(const RgbView& picture, int quality) {
    if (setjmp(errors_.escape) != 0) return false;
    jpeg_create_compress(&info_);
    jpeg_mem_dest(&info_, &bytes_, &size_);
    info_.image_width = static_cast<JDIMENSION>(picture.width);
    info_.image_height = static_cast<JDIMENSION>(picture.height);
    info_.input_components = 3;
    info_.in_color_space = JCS_RGB;
    jpeg_set_defaults(&info_);
    jpeg_set_quality(&info_, quality, TRUE);
    info_.optimize_coding = TRUE;
    jpeg_start_compress(&info_, TRUE);
    while (info_.next_scanline < info_.image_height) {
      // The const_cast is safe: the library only reads the rows, although its pointers are not const.
      auto* row = const_cast<JSAMPLE*>(picture.pixels.data()) + size_t{3} * info_.image_width * info_.next_scanline;
      jpeg_write_scanlines(&info_, &row, 1);
    }
    jpeg_finish_compress(&info_);
    return true;
  }

  std::string bytes() const { return {reinterpret_cast<const char*>(bytes_), size_}; }
  const char* error() const { return errors_.message.data(); }

 private:
  JpegErrors errors_ = {};
  jpeg_compress_struct info_ = {};
  unsigned char* bytes_ = nullptr;
  unsigned long size_ = 0;  // NOLINT: libjpeg's type
};

void check_picture(const RgbView& picture) {
  require(std::ssize(picture.pixels) == picture.height * picture.width * 3, "{} bytes for {} x {} pixels",
          picture.pixels.size(), picture.width, picture.height);
}

}  // namespace

std::string encode_as_jpeg(const RgbView& picture, int quality) {
  check_picture(picture);
  JpegWriter writer;
  if (!writer.write(picture, quality)) {
    fail(ExitCode::data, "a picture of {} x {} pixels cannot be a JPEG: {}", picture.width, picture.height,
         writer.error());
  }
  return writer.bytes();
}

std::string encode_as_png(const RgbView& picture) {
  check_picture(picture);
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(picture.width);
  image.height = static_cast<png_uint_32>(picture.height);
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string bytes(size, '\0');
  if (png_image_write_to_memory(&image, bytes.data(), &size, 0, picture.pixels.data(), 0, nullptr) == 0) {
    fail(ExitCode::data, "a picture of {} x {} pixels cannot be a PNG: {}", picture.width, picture.height,
         image.message);
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace lockstep
