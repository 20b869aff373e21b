#include "data/jpeg_errors.h"

#include <jerror.h>  // NOLINT: must follow jpeglib.h

#include <algorithm>
#include <string_view>
#include <vector>

#include "data/image_decoders.h"
#include "lockstep/data/data_source.h"

namespace lockstep {
namespace {

// Warnings are silent. Of them only a file that ends too soon makes the picture useless; stray bytes between markers
// stand in many published ImageNet files.
void on_message(j_common_ptr info, int level) {
  if (level < 0 && info->err->msg_code == JWRN_JPEG_EOF) errors_of(info).truncated = true;
}

void ignore_output(j_common_ptr) {}

class JpegReader {
 public:
  explicit JpegReader(std::span<const std::byte> encoded) : encoded_(encoded) {
    info_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = jump_out;
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
    data_begin_ = encoded_.size() - info_.src->bytes_in_buffer;
    const bool four_inks = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    info_.out_color_space = four_inks ? JCS_CMYK : JCS_RGB;
    jpeg_calc_output_dimensions(&info_);
    return true;
  }

  // Decodes at a fraction of the size: height() and width() become that picture's.
  bool shrink(int64_t factor) {
    if (setjmp(errors_.escape) != 0) return false;
    info_.scale_num = 1;
    info_.scale_denom = static_cast<unsigned>(factor);
    jpeg_calc_output_dimensions(&info_);
    return true;
  }

  // Begins to decode what lies in `window`, which is widened to columns where decoding can begin.
  bool begin(ImageWindow& window) {
    if (setjmp(errors_.escape) != 0) return false;
    jpeg_start_decompress(&info_);
    if (window.width < width()) {
      auto left = static_cast<JDIMENSION>(window.left), columns = static_cast<JDIMENSION>(window.width);
      jpeg_crop_scanline(&info_, &left, &columns);
      window.left = left;
      window.width = columns;
    }
    if (window.top > 0) jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(window.top));
    return true;
  }

  // Decodes the next `rows` rows of `stride` bytes; none is needed after them.
  bool read(uint8_t* pixels, size_t stride, int64_t rows) {
    if (setjmp(errors_.escape) != 0) return false;
    for (int64_t y = 0; y < rows;) {
      JSAMPROW row = pixels + static_cast<size_t>(y) * stride;
      y += jpeg_read_scanlines(&info_, &row, 1);
    }
    return true;
  }

  // Whether the file ends behind its picture's data: their end marker occurs in no other place after their beginning.
  bool complete() const {
    const std::string_view text(reinterpret_cast<const char*>(encoded_.data()), encoded_.size());
    const size_t end = text.rfind("\xff\xd9");
    return !errors_.truncated && end != std::string_view::npos && end >= data_begin_;
  }

  int64_t height() const { return info_.output_height; }
  int64_t width() const { return info_.output_width; }
  bool four_inks() const { return info_.out_color_space == JCS_CMYK; }
  bool inverted() const { return info_.saw_Adobe_marker != 0; }
  const char* error() const { return errors_.message.data(); }
  // Whether that error says that the file is of a kind the library does not read, rather than damaged.
  bool unsupported() const {
    const int code = errors_.base.msg_code;
    return code == JERR_BAD_PRECISION || code == JERR_ARITH_NOTIMPL || code == JERR_SOF_UNSUPPORTED;
  }

 private:
  const std::span<const std::byte> encoded_;
  size_t data_begin_ = 0;  // of the first scan
  JpegErrors errors_ = {};
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

// The window that is wanted and a margin: where decoding begins or ends, color is interpolated from one side only.
ImageWindow with_margin(const ImageWindow& wanted, int64_t height, int64_t width) {
  constexpr int64_t kMargin = 4;  // two samples of halved color
  const int64_t top = std::max<int64_t>(0, wanted.top - kMargin), left = std::max<int64_t>(0, wanted.left - kMargin);
  return {.top = top,
          .left = left,
          .height = std::min(height, wanted.top + wanted.height + kMargin) - top,
          .width = std::min(width, wanted.left + wanted.width + kMargin) - left,
          .shrink = wanted.shrink};
}

}  // namespace

void decode_jpeg(std::span<const std::byte> encoded, Image& image, const ChooseWindow& choose) {
  JpegReader reader(encoded);
  const auto check = [&](bool fine) {
    if (fine) return;
    if (!reader.unsupported()) throw BadRecord(fmt::format("damaged JPEG: {}", reader.error()));
    throw BadRecord(fmt::format("a JPEG of a kind that cannot be read ({}); 8-bit baseline and progressive ones can",
                                reader.error()));
  };
  check(reader.start());
  check_size(reader.height(), reader.width());
  image.height = reader.height();
  image.width = reader.width();
  ImageWindow& window = image.window = {.height = image.height, .width = image.width};
  if (choose && !reader.four_inks()) {
    const ImageWindow wanted = choose(image.height, image.width);
    check(reader.shrink(wanted.shrink));
    window = with_margin(wanted, reader.height(), reader.width());
  }
  check(reader.begin(window));
  image.pixels.resize(static_cast<size_t>(window.height * window.width * 3));
  if (reader.four_inks()) {
    std::vector<uint8_t> inks(image.pixels.size() / 3 * 4);
    check(reader.read(inks.data(), static_cast<size_t>(window.width) * 4, window.height));
    convert_inks(inks, reader.inverted(), image.pixels);
  } else {
    check(reader.read(image.pixels.data(), static_cast<size_t>(window.width) * 3, window.height));
  }
  if (!reader.complete()) throw BadRecord("the JPEG is cut off");
}

}  // namespace lockstep
