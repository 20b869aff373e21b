#include "lockstep/data/pack.h"

#include <cmath>
#include <set>

#include "lockstep/data/image/decode.h"
#include "lockstep/data/source/formats.h"
#include "lockstep/io/file.h"
#include "test/catch.h"
#include "test/data/image_writer.h"
#include "test/data/record_writer.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

std::string picture(int height, int width, int red) {
  std::vector<uint8_t> pixels;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (const int value : {red, 2 * x % 256, 2 * y % 256}) pixels.push_back(static_cast<uint8_t>(value));
    }
  }
  return encode_jpeg(pixels, height, width, {});
}

// A data set of TFRecords in `scratch`, opened as `pack` opens one: with the labels that are stored.
std::unique_ptr<DataSource> source_of(const ScratchDirectory& scratch, const std::vector<std::string>& records) {
  write_file(scratch / "in", frame_records(records));
  return open_data_source({.format = "tfrecord", .files = {scratch / "in"}});
}

std::unique_ptr<DataSource> packed(const ScratchDirectory& scratch, const std::string& name = "train") {
  return open_data_source({.format = "tfrecord", .files = list_inputs("tfrecord", {scratch / ("out/" + name + "-*")})});
}

Image decoded(const DataSource& source, int64_t index) {
  Sample sample;
  source.read(index, sample);
  Image image;
  decode_image(sample.bytes, image);
  return image;
}

}  // namespace

TEST_CASE("pack shrinks large pictures, keeps the bytes of small ones and all stored labels") {
  const ScratchDirectory scratch;
  const std::string small = picture(40, 60, 10), wide = picture(100, 250, 20), tall = picture(300, 90, 30);
  const auto source = source_of(
      scratch, {image_example(small, 1), image_example(wide, 1000), image_example(tall, 7), image_example(small, 0)});
  const PackSummary summary =
      pack_images(*source, {.directory = scratch / "out", .short_side = 45, .records_per_file = 3, .threads = 2});
  CHECK(summary.files == 2);
  CHECK(summary.records == 4);
  CHECK(summary.shrunk == 2);
  CHECK(summary.left_out.empty());
  CHECK(list_directory(scratch / "out", ExitCode::internal) ==
        std::vector<std::string>{"train-00000-of-00002", "train-00001-of-00002"});
  const auto result = packed(scratch);
  REQUIRE(result->size() == 4);
  Sample sample;
  for (const auto& [index, label] : {std::pair{0, 1}, {1, 1000}, {2, 7}, {3, 0}}) {
    result->read(index, sample);
    CHECK(sample.label == label);
  }
  result->read(0, sample);
  CHECK(std::string(reinterpret_cast<const char*>(sample.bytes.data()), sample.bytes.size()) == small);
  const Image from_wide = decoded(*result, 1), from_tall = decoded(*result, 2);
  CHECK(from_wide.height == 45);
  CHECK(from_wide.width == 113);  // 250 x 45 / 100, rounded
  CHECK(from_tall.height == 150);
  CHECK(from_tall.width == 45);
}

TEST_CASE("what pack writes looks like the original, and as PNG exactly like its resized form") {
  const ScratchDirectory scratch;
  const auto source = source_of(scratch, {image_example(picture(128, 128, 77), 3)});
  for (const bool lossless : {false, true}) {
    const std::string name = lossless ? "png" : "jpeg";
    pack_images(*source, {.directory = scratch / "out", .name = name, .short_side = 32, .lossless = lossless});
    const Image image = decoded(*packed(scratch, name), 0);
    REQUIRE(image.height == 32);
    // Position i of the small picture is the mean around 4 i + 1.5 of the large one, whose green is 2 x and blue 2 y.
    for (int64_t y = 4; y < 28; ++y) {
      for (int64_t x = 4; x < 28; ++x) {
        const uint8_t* pixel = &image.pixels[static_cast<size_t>(3 * (y * 32 + x))];
        REQUIRE(std::abs(pixel[0] - 77) <= 6);
        REQUIRE(std::abs(static_cast<double>(pixel[1]) - (8.0 * static_cast<double>(x) + 3)) <= 8);
        REQUIRE(std::abs(static_cast<double>(pixel[2]) - (8.0 * static_cast<double>(y) + 3)) <= 8);
      }
    }
  }
}

TEST_CASE("pack writes in a random order that the seed decides, when asked to") {
  const ScratchDirectory scratch;
  std::vector<std::string> records;
  for (int i = 0; i < 40; ++i) records.push_back(image_example(flat_png(4, 4, 1, 2, 3), i));
  const auto source = source_of(scratch, records);
  const auto labels = [&](const std::string& name, bool shuffle, uint64_t seed) {
    pack_images(*source, {.directory = scratch / "out",
                          .name = name,
                          .short_side = 8,
                          .records_per_file = 7,
                          .shuffle = shuffle,
                          .seed = seed,
                          .threads = 3});
    std::vector<int64_t> found;
    const auto result = packed(scratch, name);
    Sample sample;
    for (int64_t i = 0; i < result->size(); ++i) {
      result->read(i, sample);
      found.push_back(sample.label);
    }
    return found;
  };
  std::vector<int64_t> in_order;
  for (int64_t i = 0; i < 40; ++i) in_order.push_back(i);
  const auto first = labels("first", true, 1);
  CHECK(labels("plain", false, 1) == in_order);
  CHECK(first != in_order);
  CHECK(std::set(first.begin(), first.end()).size() == 40);
  CHECK(labels("again", true, 1) == first);
  CHECK(labels("other", true, 2) != first);
}

TEST_CASE("pack ends at a bad record and names it, or leaves it out and says so") {
  const ScratchDirectory scratch;
  const std::string whole = picture(50, 50, 1);
  const auto source = source_of(scratch, {image_example(whole, 0), image_example(whole.substr(0, 400), 1),
                                          image_example("GIF89a...", 2), image_example(whole, 3)});
  CHECK_THROWS_WITH(pack_images(*source, {.directory = scratch / "out", .short_side = 8}),
                    ContainsSubstring("in record 1") && ContainsSubstring("JPEG"));
  CHECK(list_directory(scratch / "out", ExitCode::internal).empty());
  const PackSummary summary = pack_images(
      *source, {.directory = scratch / "out", .short_side = 8, .bad_records = BadRecords::skip, .threads = 2});
  CHECK(summary.records == 2);
  REQUIRE(summary.left_out.size() == 2);
  CHECK_THAT(summary.left_out[1], ContainsSubstring("in record 2") && ContainsSubstring("GIF"));
  CHECK(packed(scratch)->size() == 2);
}

TEST_CASE("pack does not write where files of the name are") {
  const ScratchDirectory scratch;
  const auto source = source_of(scratch, {image_example(flat_png(4, 4, 1, 2, 3), 0)});
  const PackOptions options = {.directory = scratch / "out", .short_side = 8};
  pack_images(*source, options);
  CHECK_THROWS_WITH(pack_images(*source, options), ContainsSubstring("train-00000-of-00001 is there already"));
}

TEST_CASE("pack refuses what is no picture") {
  const ScratchDirectory scratch;
  write_file(scratch / "in", frame_record(sparse_example(1, {1}, {1})));
  const auto source = open_data_source({.format = "sparse_tfrecord", .files = {scratch / "in"}});
  CHECK_THROWS_WITH(pack_images(*source, {.directory = scratch / "out", .short_side = 8}),
                    ContainsSubstring("ids and values cannot be packed"));
}

TEST_CASE("pack writes arrays of bytes as pictures of their own size") {
  const ScratchDirectory scratch;
  std::string record(1 + 3072, '\0');
  record[0] = 4;
  for (size_t i = 1; i < record.size(); ++i) record[i] = static_cast<char>(i % 251);
  write_file(scratch / "batch.bin", record);
  const auto source = open_data_source({.format = "cifar10", .files = {scratch / "batch.bin"}});
  pack_images(*source, {.directory = scratch / "out", .short_side = 36, .lossless = true});
  const auto result = packed(scratch);
  Sample sample;
  result->read(0, sample);
  CHECK(sample.label == 4);
  const Image image = decoded(*result, 0);
  REQUIRE(image.height == 32);
  for (size_t i = 0; i < 1024; ++i) {
    for (size_t c = 0; c < 3; ++c) {
      REQUIRE(image.pixels[3 * i + c] == static_cast<uint8_t>(record[1 + c * 1024 + i]));
    }
  }
}
