#include "data/image/jpeg_errors.h"

#include <jerror.h>  // NOLINT: must follow jpeglib.h

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "data/image/image_decoders.h"
#include "lockstep/base/printable.h"
#include "lockstep/data/source/data_source.h"

namespace lockstep {
namespace {

constexpr int kMaxScans = 100;                           // encoders make about ten
constexpr int64_t kMaxBlocksPerByte = 8;                 // a block takes at least one bit of Huffman code
constexpr int64_t kMaxArithmeticBlocksPerByte = 8 * 64;  // arithmetic coding takes less for a flat block

bool is_restart(int marker) { return marker >= JPEG_RST0 && marker <= JPEG_RST0 + 7; }

// Warnings are not printed. Only missing data make a picture unusable: many published ImageNet files have stray bytes
// between markers, and the decoder continues after a restart marker that comes too early.
void on_message(j_common_ptr info, int level) {
  if (level >= 0) return;
  JpegErrors& errors = errors_of(info);
  const int code = info->err->msg_code;
  if (code == JWRN_JPEG_EOF) errors.file_ended = true;
  if (code == JWRN_HIT_MARKER && !is_restart(reinterpret_cast<j_decompress_ptr>(info)->unread_marker)) {
    errors.data_missing = true;
  }
}

void ignore_output(j_common_ptr) {}

// Called by the library at every row of blocks. The library decodes each scan over the whole picture, even if the scan
// has few data, so the number of scans is limited.
void on_progress(j_common_ptr info) {
  JpegErrors& errors = errors_of(info);
  const auto* decoder = reinterpret_cast<j_decompress_ptr>(info);
  for (int i = 0; i < decoder->comps_in_scan; ++i) {
    errors.components_seen |= 1u << decoder->cur_comp_info[i]->component_index;
  }
  if (decoder->input_scan_number <= kMaxScans) return;
  std::snprintf(errors.message.data(), errors.message.size(), "it has more than %d scans", kMaxScans);
  std::longjmp(errors.escape, 1);
}

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

  // Returns false on failure; see error().
  bool start() {
    if (setjmp(errors_.escape) != 0) return false;
    jpeg_create_decompress(&info_);
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(encoded_.data()), encoded_.size());
    info_.progress = &progress_;
    jpeg_read_header(&info_, TRUE);
    const bool four_inks = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    info_.out_color_space = four_inks ? JCS_CMYK : JCS_RGB;
    jpeg_calc_output_dimensions(&info_);
    return true;
  }

  // Selects a fraction of the size; height() and width() are then those of the smaller picture.
  bool shrink(int64_t factor) {
    if (setjmp(errors_.escape) != 0) return false;
    info_.scale_num = 1;
    info_.scale_denom = static_cast<unsigned>(factor);
    jpeg_calc_output_dimensions(&info_);
    return true;
  }

  // Starts to decode `window`, which is widened to columns at which decoding can start.
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

  // Decodes the next `rows` rows of `stride` bytes.
  bool read(uint8_t* pixels, size_t stride, int64_t rows) {
    if (setjmp(errors_.escape) != 0) return false;
    for (int64_t y = 0; y < rows;) {
      JSAMPROW row = pixels + static_cast<size_t>(y) * stride;
      y += jpeg_read_scanlines(&info_, &row, 1);
    }
    return true;
  }

  // Decodes as much of the remaining rows as is needed to know that their data exist. `row` has room for one row.
  bool finish(uint8_t* row) {
    if (setjmp(errors_.escape) != 0) return false;
    if (jpeg_has_multiple_scans(&info_)) return true;  // all scans were read before the first row
    const JDIMENSION rows = info_.output_height - info_.output_scanline;
    if (rows > 1) jpeg_skip_scanlines(&info_, rows - 1);  // skipping the last row as well would read nothing
    if (rows > 0) jpeg_read_scanlines(&info_, &row, 1);
    return true;
  }

  // Returns whether there were data for every block; what follows them does not matter.
  bool complete() {
    if (errors_.data_missing) return false;
    if (info_.arith_code && (errors_.file_ended || info_.unread_marker == kStartOfImage)) return false;  // no warning
    return !errors_.file_ended || !jpeg_has_multiple_scans(&info_) || all_scans_seen();
  }

  // Returns whether the file is long enough for the blocks of the picture.
  bool plausible() const {
    int64_t blocks = 0;
    for (int i = 0; i < info_.num_components; ++i) {
      const jpeg_component_info& component = info_.comp_info[i];
      blocks += static_cast<int64_t>(component.width_in_blocks) * component.height_in_blocks;
    }
    const int64_t per_byte = info_.arith_code ? kMaxArithmeticBlocksPerByte : kMaxBlocksPerByte;
    return blocks / per_byte <= std::ssize(encoded_);
  }

  int64_t height() const { return info_.output_height; }
  int64_t width() const { return info_.output_width; }
  bool four_inks() const { return info_.out_color_space == JCS_CMYK; }
  bool inverted() const { return info_.saw_Adobe_marker != 0; }
  const char* error() const { return errors_.message.data(); }
  // Returns whether the error means that the library does not support the kind of file, not that the file is damaged.
  bool unsupported() const {
    const int code = errors_.base.msg_code;
    return code == JERR_BAD_PRECISION || code == JERR_ARITH_NOTIMPL || code == JERR_SOF_UNSUPPORTED;
  }

 private:
  static constexpr int kStartOfImage = 0xd8;

  // In a file without an end marker, scans may be missing. The picture is complete if the scans of a progressive
  // picture had every bit of every coefficient, and those of other pictures every component.
  bool all_scans_seen() const {
    if (info_.progressive_mode) {
      const int* bits = info_.coef_bits[0];
      return std::all_of(bits, bits + static_cast<ptrdiff_t>(info_.num_components) * DCTSIZE2,
                         [](int missing) { return missing == 0; });
    }
    return errors_.components_seen == (1u << info_.num_components) - 1;
  }

  const std::span<const std::byte> encoded_;
  JpegErrors errors_ = {};
  jpeg_progress_mgr progress_ = {
      .progress_monitor = on_progress, .pass_counter = 0, .pass_limit = 0, .completed_passes = 0, .total_passes = 0};
  jpeg_decompress_struct info_ = {};
};

// Converts CMYK to RGB without a color profile: each ink absorbs its share of the light that black leaves. Files with
// Adobe's marker store the remaining light instead of the ink.
void convert_inks(std::span<const uint8_t> inks, bool inverted, std::span<uint8_t> rgb) {
  const int flip = inverted ? 0 : 255;
  for (size_t i = 0; i < rgb.size() / 3; ++i) {
    const int black = inks[4 * i + 3] ^ flip;
    for (size_t c = 0; c < 3; ++c) {
      rgb[3 * i + c] = static_cast<uint8_t>(((inks[4 * i + c] ^ flip) * black + 127) / 255);
    }
  }
}

// Returns the window with a margin, because at its edges the decoder interpolates color from one side only.
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

void decode_jpeg(std::span<const std::byte> encoded, Image& image, const ChooseWindow& choose,
                 const DecodeLimits& limits) {
  JpegReader reader(encoded);
  const auto check = [&](bool fine) {
    if (fine) return;
    const std::string reason = printable(reader.error());
    if (!reader.unsupported()) throw BadRecord(fmt::format("damaged JPEG: {}", reason));
    throw BadRecord(
        fmt::format("a JPEG of a kind that cannot be read ({}); 8-bit baseline and progressive ones can", reason));
  };
  check(reader.start());
  check_size(reader.height(), reader.width(), limits);
  if (!reader.plausible()) {
    throw BadRecord(fmt::format("the JPEG is cut off, or damaged: {} bytes cannot hold {} x {} pixels", encoded.size(),
                                reader.width(), reader.height()));
  }
  image.height = reader.height();
  image.width = reader.width();
  ImageWindow& window = image.window = {.height = image.height, .width = image.width};
  if (choose && !reader.four_inks()) {
    const ImageWindow wanted = choose(image.height, image.width);
    check(reader.shrink(wanted.shrink));
    window = with_margin(wanted, reader.height(), reader.width());
  }
  check(reader.begin(window));
  const size_t stride = static_cast<size_t>(window.width) * (reader.four_inks() ? 4 : 3);
  std::vector<uint8_t> last_row(stride);
  image.pixels.resize(static_cast<size_t>(window.height * window.width * 3));
  if (reader.four_inks()) {
    std::vector<uint8_t> inks(image.pixels.size() / 3 * 4);
    check(reader.read(inks.data(), stride, window.height));
    convert_inks(inks, reader.inverted(), image.pixels);
  } else {
    check(reader.read(image.pixels.data(), stride, window.height));
  }
  check(reader.finish(last_row.data()));
  if (!reader.complete()) throw BadRecord("the JPEG is cut off");
}

}  // namespace lockstep
