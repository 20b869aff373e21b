#include "lockstep/data/image/decode.h"

#include <cstdlib>

#include "lockstep/base/random.h"
#include "lockstep/data/source/data_source.h"
#include "test/catch.h"
#include "test/data/image_writer.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

using Rgb = std::vector<uint8_t>;

std::span<const std::byte> as_bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

Image decode(const std::string& encoded) {
  Image image;
  decode_image(std::as_bytes(std::span(encoded)), image);
  return image;
}

std::string image_error(const std::string& encoded) {
  try {
    decode(encoded);
  } catch (const BadRecord& bad) {
    CHECK(bad.code() == ExitCode::data);
    return bad.what();
  }
  return "no error";
}

// A smooth picture, so that chroma subsampling costs little.
Rgb gradient(int height, int width, int components) {
  Rgb pixels;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < components; ++c) pixels.push_back(static_cast<uint8_t>((x * 3 + y * (c + 1)) % 200));
    }
  }
  return pixels;
}

Rgb repeated(const Rgb& pixel, int count) {
  Rgb pixels;
  for (int i = 0; i < count; ++i) pixels.insert(pixels.end(), pixel.begin(), pixel.end());
  return pixels;
}

void check_flat(const Image& image, const Rgb& color, int tolerance) {
  REQUIRE(image.pixels.size() == static_cast<size_t>(image.height * image.width * 3));
  for (size_t i = 0; i < image.pixels.size(); ++i) REQUIRE(std::abs(image.pixels[i] - color[i % 3]) <= tolerance);
}

}  // namespace

TEST_CASE("a color JPEG decodes to its pixels, baseline and progressive") {
  const Rgb pixels = gradient(16, 24, 3);
  for (const bool progressive : {false, true}) {
    const Image image = decode(encode_jpeg(pixels, 16, 24, {.progressive = progressive}));
    REQUIRE(image.height == 16);
    REQUIRE(image.width == 24);
    for (size_t i = 0; i < pixels.size(); ++i) REQUIRE(std::abs(image.pixels[i] - pixels[i]) < 16);
  }
}

TEST_CASE("a gray JPEG becomes three equal channels") {
  const Image image = decode(encode_jpeg(Rgb(64, 123), 8, 8, {.components = 1}));
  check_flat(image, {123, 123, 123}, 1);
}

TEST_CASE("CMYK and YCCK JPEGs become RGB, Adobe's inverted values and plain ones") {
  // (200,40,40) as ink without black: what is missing to white.
  const Rgb ink = {55, 215, 215, 0};
  const Rgb light = {200, 40, 40, 255};
  for (const bool ycck : {false, true}) {
    check_flat(decode(encode_jpeg(repeated(light, 256), 16, 16, {.components = 4, .ycck = ycck})), {200, 40, 40}, 8);
  }
  check_flat(decode(encode_jpeg(repeated(ink, 256), 16, 16, {.components = 4, .adobe = false})), {200, 40, 40}, 8);
  // Half black halves the light.
  check_flat(decode(encode_jpeg(repeated({200, 40, 40, 128}, 256), 16, 16, {.components = 4})), {100, 20, 20}, 8);
}

TEST_CASE("a truncated JPEG is a bad record wherever it was cut") {
  const std::string whole = encode_jpeg(gradient(64, 64, 3), 64, 64, {});
  for (const size_t percent : {size_t{10}, size_t{50}, size_t{90}, size_t{99}}) {
    CHECK_THAT(image_error(whole.substr(0, whole.size() * percent / 100)), ContainsSubstring("JPEG"));
  }
  CHECK_THAT(image_error(whole.substr(0, whole.size() / 2)), ContainsSubstring("cut off"));
  CHECK_THAT(image_error(""), ContainsSubstring("empty"));
}

TEST_CASE("a window of a JPEG has the values of the whole picture") {
  constexpr int kHeight = 150, kWidth = 211;
  for (const JpegOptions& options :
       {JpegOptions{}, JpegOptions{.components = 1}, JpegOptions{.progressive = true}, JpegOptions{.components = 4}}) {
    const std::string encoded = encode_jpeg(gradient(kHeight, kWidth, options.components), kHeight, kWidth, options);
    const Image whole = decode(encoded);
    CHECK(whole.window == ImageWindow{.height = kHeight, .width = kWidth});
    RandomStream random(3);
    Image image;
    for (int i = 0; i < 200; ++i) {
      ImageWindow wanted;
      wanted.top = static_cast<int64_t>(random.below(kHeight));
      wanted.left = static_cast<int64_t>(random.below(kWidth));
      wanted.height = 1 + static_cast<int64_t>(random.below(static_cast<uint64_t>(kHeight - wanted.top)));
      wanted.width = 1 + static_cast<int64_t>(random.below(static_cast<uint64_t>(kWidth - wanted.left)));
      decode_image(as_bytes(encoded), image, [&](int64_t height, int64_t width) {
        REQUIRE(height == kHeight);
        REQUIRE(width == kWidth);
        return wanted;
      });
      const ImageWindow& got = image.window;
      REQUIRE(got.top <= wanted.top);
      REQUIRE(got.left <= wanted.left);
      REQUIRE(got.top + got.height >= wanted.top + wanted.height);
      REQUIRE(got.left + got.width >= wanted.left + wanted.width);
      REQUIRE(std::ssize(image.pixels) == got.height * got.width * 3);
      for (int64_t y = wanted.top; y < wanted.top + wanted.height; ++y) {
        const auto row = [&](const Image& from) {
          const auto begin = ((y - from.window.top) * from.window.width + wanted.left - from.window.left) * 3;
          return std::vector<uint8_t>(from.pixels.begin() + begin, from.pixels.begin() + begin + wanted.width * 3);
        };
        REQUIRE(row(image) == row(whole));
      }
    }
  }
}

TEST_CASE("a truncated JPEG is a bad record even when the window lies before the cut") {
  const std::string encoded = encode_jpeg(gradient(160, 160, 3), 160, 160, {});
  Image image;
  const auto top = [](int64_t, int64_t) { return ImageWindow{.height = 8, .width = 8}; };
  CHECK_NOTHROW(decode_image(as_bytes(encoded), image, top));
  CHECK_NOTHROW(decode_image(as_bytes(encoded + std::string(100, '\0')), image, top));  // padded files are published
  for (const double share : {0.6, 0.9, 0.99}) {
    const auto length = static_cast<size_t>(share * static_cast<double>(encoded.size()));
    CHECK_THROWS_AS(decode_image(as_bytes(encoded.substr(0, length)), image, top), BadRecord);
  }
}

TEST_CASE("a JPEG decoded at a fraction of its size has that picture's values in every window") {
  constexpr int kHeight = 150, kWidth = 211;
  for (const JpegOptions& options : {JpegOptions{}, JpegOptions{.components = 1}, JpegOptions{.progressive = true}}) {
    const std::string encoded = encode_jpeg(gradient(kHeight, kWidth, options.components), kHeight, kWidth, options);
    for (const int64_t shrink : {2, 4, 8}) {
      const int64_t height = (kHeight + shrink - 1) / shrink, width = (kWidth + shrink - 1) / shrink;
      const auto decode_part = [&](ImageWindow window) {
        window.shrink = shrink;
        Image image;
        decode_image(as_bytes(encoded), image, [&](int64_t, int64_t) { return window; });
        CHECK(image.height == kHeight);
        CHECK(image.width == kWidth);
        return image;
      };
      const Image whole = decode_part({.height = height, .width = width});
      REQUIRE(whole.window == ImageWindow{.height = height, .width = width, .shrink = shrink});
      RandomStream random(3);
      for (int i = 0; i < 40; ++i) {
        ImageWindow wanted;
        wanted.top = static_cast<int64_t>(random.below(static_cast<uint64_t>(height)));
        wanted.left = static_cast<int64_t>(random.below(static_cast<uint64_t>(width)));
        wanted.height = 1 + static_cast<int64_t>(random.below(static_cast<uint64_t>(height - wanted.top)));
        wanted.width = 1 + static_cast<int64_t>(random.below(static_cast<uint64_t>(width - wanted.left)));
        const Image part = decode_part(wanted);
        const ImageWindow& got = part.window;
        for (int64_t y = wanted.top; y < wanted.top + wanted.height; ++y) {
          for (int64_t x = wanted.left; x < wanted.left + wanted.width; ++x) {
            for (int64_t c = 0; c < 3; ++c) {
              REQUIRE(part.pixels.at(static_cast<size_t>(((y - got.top) * got.width + x - got.left) * 3 + c)) ==
                      whole.pixels.at(static_cast<size_t>((y * width + x) * 3 + c)));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("a JPEG of a kind that is not read says so: 12 bits a sample, lossless") {
  const std::string whole = encode_jpeg(gradient(16, 16, 3), 16, 16, {});
  const size_t frame = whole.find("\xff\xc0");
  REQUIRE(frame != std::string::npos);
  std::string twelve = whole;
  twelve[frame + 4] = 12;
  std::string lossless = whole;
  lossless[frame + 1] = '\xc3';
  for (const std::string& encoded : {twelve, lossless}) {
    CHECK_THAT(image_error(encoded), ContainsSubstring("of a kind that cannot be read") && ContainsSubstring("8-bit"));
  }
}

TEST_CASE("an arithmetic-coded JPEG is decoded where the library can, else named") {
  const std::string encoded = encode_jpeg(gradient(32, 32, 3), 32, 32, {.arithmetic = true});
  try {
    CHECK(decode(encoded).height == 32);
  } catch (const BadRecord& bad) {
    CHECK_THAT(bad.what(), ContainsSubstring("of a kind that cannot be read"));
  }
}

TEST_CASE("stray bytes between a JPEG's parts do not make it bad") {
  std::string encoded = encode_jpeg(gradient(16, 16, 3), 16, 16, {});
  encoded.insert(20, "stray");  // behind the JFIF segment
  CHECK(decode(encoded).height == 16);
}

TEST_CASE("EXIF orientation changes nothing, nor does a damaged EXIF block") {
  const std::string plain = encode_jpeg(gradient(16, 24, 3), 16, 24, {});
  const std::string tiff("MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0", 26);
  for (const std::string& content : {std::string("Exif\0\0", 6) + tiff, std::string("Exif\0\0garbage", 13)}) {
    const auto length = static_cast<char>(content.size() + 2);
    const std::string block = std::string("\xff\xe1\0", 3) + length + content;
    std::string turned = plain;
    turned.insert(2, block);
    CHECK(decode(turned).pixels == decode(plain).pixels);
  }
}

TEST_CASE("PNGs of every kind become 8-bit RGB") {
  const Rgb rgb = gradient(5, 7, 3);
  CHECK(decode(encode_png(rgb, 5, 7, {})).pixels == rgb);
  CHECK(decode(encode_png(rgb, 5, 7, {.interlaced = true})).pixels == rgb);

  SECTION("gray of 1, 2, 4 and 8 bits is stretched to 0..255") {
    CHECK(decode(encode_png({0x40}, 1, 2, {.color_type = 0, .bit_depth = 1})).pixels == Rgb{0, 0, 0, 255, 255, 255});
    CHECK(decode(encode_png({0x70}, 1, 2, {.color_type = 0, .bit_depth = 2})).pixels == Rgb{85, 85, 85, 255, 255, 255});
    CHECK(decode(encode_png({0x1f}, 1, 2, {.color_type = 0, .bit_depth = 4})).pixels == Rgb{17, 17, 17, 255, 255, 255});
    CHECK(decode(encode_png({7, 8}, 1, 2, {.color_type = 0})).pixels == Rgb{7, 7, 7, 8, 8, 8});
  }
  SECTION("16-bit samples are scaled") {
    CHECK(decode(encode_png({0xff, 0xff, 0x80, 0x80, 0x00, 0x00}, 1, 1, {.bit_depth = 16})).pixels == Rgb{255, 128, 0});
    CHECK(decode(encode_png({0x12, 0x12}, 1, 1, {.color_type = 0, .bit_depth = 16})).pixels == Rgb{18, 18, 18});
  }
  SECTION("alpha is dropped") {
    CHECK(decode(encode_png({1, 2, 3, 99}, 1, 1, {.color_type = 6})).pixels == Rgb{1, 2, 3});
    CHECK(decode(encode_png({5, 99}, 1, 1, {.color_type = 4})).pixels == Rgb{5, 5, 5});
  }
  SECTION("palettes are looked up, transparent entries too") {
    const std::vector<uint8_t> palette = {10, 20, 30, 40, 50, 60};
    for (const bool alpha : {false, true}) {
      CHECK(decode(encode_png({0, 1}, 1, 2, {.color_type = 3, .palette = palette, .palette_alpha = alpha})).pixels ==
            Rgb{10, 20, 30, 40, 50, 60});
    }
    CHECK(decode(encode_png({0x40}, 1, 2, {.color_type = 3, .bit_depth = 1, .palette = palette})).pixels ==
          Rgb{10, 20, 30, 40, 50, 60});
  }
}

TEST_CASE("a truncated or damaged PNG is a bad record") {
  const std::string whole = encode_png(gradient(32, 32, 3), 32, 32, {});
  for (const size_t length : {size_t{9}, size_t{40}, whole.size() / 2, whole.size() - 3}) {
    CHECK_THAT(image_error(whole.substr(0, length)), ContainsSubstring("damaged PNG: the file is cut off"));
  }
  std::string flipped = whole;
  flipped[60] ^= 1;
  CHECK_THAT(image_error(flipped), ContainsSubstring("damaged PNG"));
}

// A PNG chunk with its length and checksum.
std::string chunk(const std::string& type, const std::string& content) {
  const auto big_endian = [](uint32_t value) {
    return std::string{static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
                       static_cast<char>(value)};
  };
  uint32_t crc = ~0u;
  for (const char c : type + content) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xedb88320u : 0u);
  }
  return big_endian(static_cast<uint32_t>(content.size())) + type + content + big_endian(~crc);
}

constexpr size_t kAfterHeader = 33;  // where the second chunk of a PNG begins

std::string hostile_file(const std::string& name) {
  return read_file(std::string(LOCKSTEP_SOURCE_DIR) + "/test/data/hostile/" + name);
}

TEST_CASE("a PNG chunk that declares more bytes than there are is refused by name before memory is asked for") {
  for (const char* name : {"png_text_length.png", "png_text_length_2GB.png"}) {
    CHECK_THAT(image_error(hostile_file(name)),
               ContainsSubstring("damaged PNG: the file is cut off: its chunk tEXt declares "));
  }
  std::string escaped = flat_png(1, 1, 1, 2, 3).substr(0, kAfterHeader) + std::string("\x7f\xff\xff\xff\x1b[2J", 8);
  CHECK_THAT(image_error(escaped), ContainsSubstring("its chunk \\x1b[2J declares 2147483647 bytes, but 0 are left"));
}

TEST_CASE("a PNG's texts, profiles and unknown chunks are not read, however long or damaged") {
  const Rgb rgb = gradient(5, 7, 3);
  const std::string plain = encode_png(rgb, 5, 7, {});
  const std::string bomb = std::string("k\0\0", 3) + "no zlib stream at all";
  for (const std::string& extra :
       {chunk("tEXt", "key" + std::string(100'000, 'x')), chunk("zTXt", bomb), chunk("iCCP", bomb), chunk("iTXt", bomb),
        chunk("eXIf", std::string(70'000, 'x')), chunk("lkSt", std::string(200'000, 'x')), chunk("gAMA", "xx")}) {
    std::string encoded = plain;
    for (int i = 0; i < 3; ++i) encoded.insert(kAfterHeader, extra);
    CHECK(decode(encoded).pixels == rgb);
  }
}

TEST_CASE("a PNG whose data cannot hold its pixels is refused before memory is asked for") {
  std::string encoded = encode_png(gradient(8, 8, 3), 8, 8, {});
  const std::string header("\0\0\x2a\xf8\0\0\x2a\xf8\x08\2\0\0\0", 13);  // 11,000 x 11,000
  encoded = encoded.substr(0, 8) + chunk("IHDR", header) + encoded.substr(kAfterHeader);
  CHECK_THAT(image_error(encoded), ContainsSubstring("bytes of data cannot hold 11000 x 11000 pixels"));
}

TEST_CASE("a JPEG whose bytes cannot hold its pixels is refused before memory is asked for") {
  CHECK_THAT(image_error(hostile_file("jpeg_228B_890MB.jpg")), ContainsSubstring("228 bytes cannot hold "));
  CHECK(decode(encode_jpeg(Rgb(3 * 1000 * 1000, 128), 1000, 1000, {})).height == 1000);  // as small as a JPEG gets
  CHECK(decode(encode_jpeg(Rgb(1000 * 1000, 128), 1000, 1000, {.components = 1, .progressive = true})).height == 1000);
}

TEST_CASE("a JPEG of too many scans is a bad record") {
  std::string encoded = hostile_file("jpeg_1000_scans.jpg");
  CHECK_THAT(image_error(encoded), ContainsSubstring("14214 bytes cannot hold 8192 x 8192 pixels"));
  const size_t frame = encoded.find("\xff\xc2");
  REQUIRE(frame != std::string::npos);
  encoded.replace(frame + 5, 4, std::string("\0\x40\0\x40", 4));  // 64 x 64: as many as its bytes can hold
  CHECK_THAT(image_error(encoded), ContainsSubstring("damaged JPEG: it has more than 100 scans"));
}

TEST_CASE("more pixels than data.max_pixels are refused, with the key") {
  Image image;
  const auto error = [&](const std::string& encoded, int64_t max_pixels) {
    const auto thrown = error_of([&] { decode_image(as_bytes(encoded), image, {}, {max_pixels}); });
    return thrown ? std::string(thrown->what()) : "no error";
  };
  for (const std::string& encoded : {encode_jpeg(gradient(16, 24, 3), 16, 24, {}), flat_png(16, 24, 1, 2, 3)}) {
    CHECK(error(encoded, 16 * 24) == "no error");
    CHECK_THAT(error(encoded, 16 * 24 - 1),
               ContainsSubstring("an image of 24 x 16 pixels, but data.max_pixels allows 383: raise it"));
  }
}

TEST_CASE("a JPEG is whole when there are data for all its blocks, whatever stands behind them") {
  for (const JpegOptions& options : {JpegOptions{}, JpegOptions{.components = 1}, JpegOptions{.progressive = true}}) {
    const Rgb pixels = gradient(96, 120, options.components);
    const std::string whole = encode_jpeg(pixels, 96, 120, options);
    REQUIRE(whole.ends_with("\xff\xd9"));
    const std::string no_end = whole.substr(0, whole.size() - 2);
    const Rgb expected = decode(whole).pixels;
    CHECK(decode(no_end + "a maker's trailer" + std::string(500, '\0')).pixels == expected);
    CHECK(decode(whole + whole.substr(0, whole.size() / 2)).pixels == expected);
  }
}

TEST_CASE("a part of a JPEG with another JPEG behind it is cut off, wherever the window lies") {
  const auto top = [](int64_t, int64_t) { return ImageWindow{.height = 8, .width = 8}; };
  for (const JpegOptions& options : {JpegOptions{}, JpegOptions{.components = 1}, JpegOptions{.progressive = true}}) {
    const std::string whole = encode_jpeg(gradient(160, 160, options.components), 160, 160, options);
    for (const double share : {0.6, 0.9}) {
      const auto length = static_cast<size_t>(share * static_cast<double>(whole.size()));
      for (const std::string& behind : {whole, std::string("\xff\xd9")}) {
        Image image;
        CHECK_THROWS_WITH(decode_image(as_bytes(whole.substr(0, length) + behind), image), ContainsSubstring("JPEG"));
        CHECK_THROWS_WITH(decode_image(as_bytes(whole.substr(0, length) + behind), image, top),
                          ContainsSubstring("JPEG"));
      }
    }
  }
}

TEST_CASE("other kinds of file are bad records with the kind named") {
  CHECK_THAT(image_error("GIF89a......"), ContainsSubstring("a GIF image"));
  CHECK_THAT(image_error("BM......"), ContainsSubstring("a BMP image"));
  CHECK_THAT(image_error("RIFF....WEBPVP8 "), ContainsSubstring("a WebP image"));
  CHECK_THAT(image_error("II*\1...."), ContainsSubstring("a TIFF image"));
  CHECK_THAT(image_error("\n <!DOCTYPE html><html>"), ContainsSubstring("an HTML or XML page"));
  CHECK_THAT(image_error("whatever"), ContainsSubstring("unknown type"));
  CHECK_THAT(image_error("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
             ContainsSubstring("a Git LFS pointer (the file itself was not fetched: run 'git lfs pull')"));
  CHECK_THAT(image_error(std::string("\0\0\0\x20"
                                     "ftypavif",
                                     12)),
             ContainsSubstring("an AVIF image"));
  CHECK_THAT(image_error(std::string("\0\0\0\x18"
                                     "ftypheic",
                                     12)),
             ContainsSubstring("a HEIC image"));
  CHECK_THAT(image_error("\xff\x0a...."), ContainsSubstring("a JPEG XL image"));
  CHECK_THAT(image_error(std::string("\0\0\0\x0cJXL \r\n\x87\n", 12)), ContainsSubstring("a JPEG XL image"));
  CHECK_THAT(image_error(std::string("PK\x03\x04....")), ContainsSubstring("a zip archive"));
}

TEST_CASE("a header that announces an absurd size is refused before memory is asked for") {
  std::string jpeg = encode_jpeg(gradient(8, 8, 3), 8, 8, {});
  const size_t frame = jpeg.find("\xff\xc0");
  REQUIRE(frame != std::string::npos);
  for (size_t i = 5; i < 9; ++i) jpeg[frame + i] = '\xf0';  // height and width
  CHECK_THAT(image_error(jpeg), ContainsSubstring("61680 x 61680 pixels"));
}
