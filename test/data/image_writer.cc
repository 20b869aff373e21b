#include "test/data/image_writer.h"

#include <cstdio>  // jpeglib.h uses FILE without including it

#include <jpeglib.h>  // NOLINT: must follow cstdio
#include <png.h>

#include <cstdlib>

namespace lockstep {

std::string encode_jpeg(const std::vector<uint8_t>& pixels, int height, int width, const JpegOptions& options) {
  jpeg_compress_struct info = {};
  jpeg_error_mgr errors = {};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long bytes = 0;  // NOLINT: libjpeg's type
  jpeg_mem_dest(&info, &memory, &bytes);
  info.image_width = static_cast<JDIMENSION>(width);
  info.image_height = static_cast<JDIMENSION>(height);
  info.input_components = options.components;
  info.in_color_space = options.components == 1 ? JCS_GRAYSCALE : options.components == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  if (options.components == 4) {
    jpeg_set_colorspace(&info, options.ycck ? JCS_YCCK : JCS_CMYK);
    info.write_Adobe_marker = options.adobe ? TRUE : FALSE;
  }
  if (options.progressive) jpeg_simple_progression(&info);
  info.arith_code = options.arithmetic ? TRUE : FALSE;
  jpeg_set_quality(&info, 95, TRUE);
  jpeg_start_compress(&info, TRUE);
  for (int y = 0; y < height; ++y) {
    JSAMPROW row = const_cast<JSAMPROW>(pixels.data()) + y * width * options.components;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string encoded(reinterpret_cast<char*>(memory), bytes);
  std::free(memory);
  return encoded;
}

std::string encode_png(const std::vector<uint8_t>& rows, int height, int width, const PngOptions& options) {
  std::string encoded;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &encoded,
      [](png_structp p, png_bytep data, size_t count) {
        static_cast<std::string*>(png_get_io_ptr(p))->append(reinterpret_cast<char*>(data), count);
      },
      nullptr);
  png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height), options.bit_depth,
               options.color_type, options.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  std::vector<png_color> palette;
  for (size_t i = 0; i + 2 < options.palette.size(); i += 3) {
    palette.push_back({options.palette[i], options.palette[i + 1], options.palette[i + 2]});
  }
  if (!palette.empty()) png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
  png_byte alpha = 10;
  if (options.palette_alpha) png_set_tRNS(png, info, &alpha, 1, nullptr);
  png_write_info(png, info);
  const size_t stride = rows.size() / static_cast<size_t>(height);
  std::vector<png_bytep> lines;
  for (int y = 0; y < height; ++y) {
    lines.push_back(const_cast<png_bytep>(rows.data()) + static_cast<size_t>(y) * stride);
  }
  png_write_image(png, lines.data());
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  return encoded;
}

std::string flat_png(int height, int width, uint8_t red, uint8_t green, uint8_t blue) {
  std::vector<uint8_t> rows;
  for (int i = 0; i < height * width; ++i) rows.insert(rows.end(), {red, green, blue});
  return encode_png(rows, height, width, {});
}

}  // namespace lockstep
