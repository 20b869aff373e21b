#include "data/image/exif.h"

#include "lockstep/data/loader.h"
#include "lockstep/data/source/formats.h"
#include "test/catch.h"
#include "test/data/image_writer.h"
#include "test/data/record_writer.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

// The JPEG with an EXIF block that notes an orientation, in either byte order.
std::string with_orientation(std::string encoded, int orientation, bool big_endian) {
  const auto number = [&](int value, int bytes) {
    const std::string little = little_endian(static_cast<uint64_t>(value), bytes);
    return big_endian ? std::string(little.rbegin(), little.rend()) : little;
  };
  const std::string tiff = (big_endian ? "MM" : "II") + number(42, 2) + number(8, 4) + number(1, 2) +
                           number(0x0112, 2) + number(3, 2) + number(1, 4) + number(orientation, 2) + number(0, 2) +
                           number(0, 4);
  const std::string content = std::string("Exif\0\0", 6) + tiff;
  encoded.insert(2, std::string("\xff\xe1\0", 3) + static_cast<char>(content.size() + 2) + content);
  return encoded;
}

std::span<const std::byte> as_bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

// Letters for pixels, row by row.
std::string upright(int orientation, const std::string& letters, int64_t height, int64_t width) {
  Image image{.height = height, .width = width, .window = {.height = height, .width = width}};
  for (const char letter : letters) image.pixels.insert(image.pixels.end(), 3, static_cast<uint8_t>(letter));
  std::vector<uint8_t> scratch;
  make_upright(orientation, image, scratch);
  std::string result;
  for (int64_t i = 0; i < image.height * image.width; ++i) {
    if (i > 0 && i % image.width == 0) result += '/';
    result += static_cast<char>(image.pixels[static_cast<size_t>(3 * i)]);
  }
  return result;
}

std::vector<float> loaded(const std::string& encoded, bool apply) {
  const ScratchDirectory directory;
  write_file(directory / "train", frame_records({image_example(encoded, 0)}));
  const auto source =
      open_data_source({.format = "tfrecord", .files = {directory / "train"}, .labels = {.classes = 1}});
  Loader loader(*source, {.training = false, .batch_size = 1, .image_size = 24, .apply_orientation = apply});
  const Batch batch = loader.next();
  return {batch.images, batch.images + 3 * 24 * 24};
}

}  // namespace

TEST_CASE("the orientation is read in either byte order") {
  const std::string plain = encode_jpeg(std::vector<uint8_t>(16 * 24 * 3, 90), 16, 24, {});
  CHECK(exif_orientation(as_bytes(plain)) == 1);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    CHECK(exif_orientation(as_bytes(with_orientation(plain, orientation, true))) == orientation);
    CHECK(exif_orientation(as_bytes(with_orientation(plain, orientation, false))) == orientation);
  }
}

TEST_CASE("blocks that make no sense say upright") {
  const std::string plain = encode_jpeg(std::vector<uint8_t>(16 * 24 * 3, 90), 16, 24, {});
  for (const int orientation : {0, 9, 255}) {
    CHECK(exif_orientation(as_bytes(with_orientation(plain, orientation, true))) == 1);
  }
  const std::string whole = with_orientation(plain, 6, true);
  for (size_t length = 0; length < 44; ++length) {
    const int orientation = exif_orientation(as_bytes(whole.substr(0, length)));
    CHECK((orientation == 1 || orientation == 6));
  }
  for (size_t at = 2; at < 40; ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    const int orientation = exif_orientation(as_bytes(damaged));
    CHECK((orientation >= 1 && orientation <= 8));
  }
  CHECK(exif_orientation(as_bytes("")) == 1);
  CHECK(exif_orientation(as_bytes("\x89PNG")) == 1);
}

TEST_CASE("every orientation is turned upright") {
  // Stored as abc/def; what each number says about where its first row and column belong.
  CHECK(upright(1, "abcdef", 2, 3) == "abc/def");
  CHECK(upright(2, "abcdef", 2, 3) == "cba/fed");
  CHECK(upright(3, "abcdef", 2, 3) == "fed/cba");
  CHECK(upright(4, "abcdef", 2, 3) == "def/abc");
  CHECK(upright(5, "abcdef", 2, 3) == "ad/be/cf");
  CHECK(upright(6, "abcdef", 2, 3) == "da/eb/fc");
  CHECK(upright(7, "abcdef", 2, 3) == "fc/eb/da");
  CHECK(upright(8, "abcdef", 2, 3) == "cf/be/ad");
}

TEST_CASE("the loader ignores the orientation unless it is asked to apply it") {
  std::vector<uint8_t> pixels;
  for (int i = 0; i < 24 * 24; ++i) pixels.insert(pixels.end(), 3, static_cast<uint8_t>(i % 24 < 8 ? 200 : 40));
  const std::string plain = encode_jpeg(pixels, 24, 24, {});
  const std::vector<float> expected = loaded(plain, false);
  CHECK(loaded(with_orientation(plain, 6, true), false) == expected);
  CHECK(loaded(plain, true) == expected);
  const std::vector<float> turned = loaded(with_orientation(plain, 6, true), true);
  for (size_t y = 0; y < 24; ++y) {
    for (size_t x = 0; x < 24; ++x) REQUIRE(turned[y * 24 + x] == expected[(23 - x) * 24 + y]);
  }
}
