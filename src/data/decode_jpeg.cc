// libjpeg reports errors by calling a function that must not return. It jumps back to the setjmp of the reader's
// method that called the library; such methods own nothing, so no destructor is jumped over.
#include <csetjmp>
#include <cstdio>  // jpeglib.h uses FILE without including it

#include <jerror.h>   // NOLINT: must follow jpeglib.h
#include <jpeglib.h>  // NOLINT: must follow cstdio

#include <array>
#include <vector>

#include "data/image_decoders.h"
#include "lockstep/data/data_source.h"

namespace lockstep {
namespace {

struct ErrorManager {
  jpeg_error_mgr base;  // first, so that the library's pointer to it is one to the whole
  std::jmp_buf escape;
  std::array<char, JMSG_LENGTH_MAX> message;
  bool truncated;
};

ErrorManager& manager_of(j_common_ptr info) { return *reinterpret_cast<ErrorManager*>(info->err); }

[[noreturn]] void on_error(j_common_ptr info) {
  ErrorManager& manager = manager_of(info);
  info->err->format_message(info, manager.message.data());
  std::longjmp(manager.escape, 1);
}

// Warnings are silent. Of them only a file that ends too soon makes the picture useless; stray bytes between markers
// stand in many published ImageNet files.
void on_message(j_common_ptr info, int level) {
  if (level < 0 && info->err->msg_code == JWRN_JPEG_EOF) manager_of(info).truncated = true;
}

void ignore_output(j_common_ptr) {}

class JpegReader {
 public:
  explicit JpegReader(std::span<const std::byte> encoded) : encoded_(encoded) {
    info_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = on_error;
    errors_.base.emit_message = on_message;
    errors_.base.output_message = ignore_output;
  }
  ~JpegReader() { jpeg_destroy_decompress(&info_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  // False: see error().
  bool start() {
    if (setjmp(errors_.escape) != 0) return false;
    jpeg_create_decompress(&info_);
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(encoded_.data()), encoded_.size());
    jpeg_read_header(&info_, TRUE);
    const bool four_inks = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    info_.out_color_space = four_inks ? JCS_CMYK : JCS_RGB;
    jpeg_calc_output_dimensions(&info_);
    return true;
  }

  // Decodes into rows of `stride` bytes.
  bool read(uint8_t* pixels, size_t stride) {
    if (setjmp(errors_.escape) != 0) return false;
    jpeg_start_decompress(&info_);
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = pixels + info_.output_scanline * stride;
      jpeg_read_scanlines(&info_, &row, 1);
    }
    jpeg_finish_decompress(&info_);
    return true;
  }

  int64_t height() const { return info_.output_height; }
  int64_t width() const { return info_.output_width; }
  bool four_inks() const { return info_.out_color_space == JCS_CMYK; }
  bool inverted() const { return info_.saw_Adobe_marker != 0; }
  bool truncated() const { return errors_.truncated; }
  const char* error() const { return errors_.message.data(); }

 private:
  const std::span<const std::byte> encoded_;
  ErrorManager errors_ = {};
  jpeg_decompress_struct info_ = {};
};

// CMYK to RGB without a color profile: each ink takes its share of the light that black lets through. Adobe's files,
// which say so by a marker, store the light that is left instead of the ink.
void convert_inks(std::span<const uint8_t> inks, bool inverted, std::span<uint8_t> rgb) {
  const int flip = inverted ? 0 : 255;
  for (size_t i = 0; i < rgb.size() / 3; ++i) {
    const int black = inks[4 * i + 3] ^ flip;
    for (size_t c = 0; c < 3; ++c) {
      rgb[3 * i + c] = static_cast<uint8_t>(((inks[4 * i + c] ^ flip) * black + 127) / 255);
    }
  }
}

}  // namespace

void decode_jpeg(std::span<const std::byte> encoded, Image& image) {
  JpegReader reader(encoded);
  if (!reader.start()) throw BadRecord(fmt::format("damaged JPEG: {}", reader.error()));
  size_image(reader.height(), reader.width(), image);
  bool read = false;
  if (reader.four_inks()) {
    std::vector<uint8_t> inks(image.pixels.size() / 3 * 4);
    read = reader.read(inks.data(), static_cast<size_t>(image.width) * 4);
    convert_inks(inks, reader.inverted(), image.pixels);
  } else {
    read = reader.read(image.pixels.data(), static_cast<size_t>(image.width) * 3);
  }
  if (!read) throw BadRecord(fmt::format("damaged JPEG: {}", reader.error()));
  if (reader.truncated()) throw BadRecord("the JPEG is cut off");
}

}  // namespace lockstep
