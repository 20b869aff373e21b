// The data set that the project ships.
#include <map>

#include "lockstep/data/image/decode.h"
#include "lockstep/data/source/formats.h"
#include "test/catch.h"

using namespace lockstep;

namespace {

const std::string kDirectory = LOCKSTEP_SOURCE_DIR "/data/digits/";

}  // namespace

TEST_CASE("the shipped digits load: 1437 and 360 records of 8 x 8 pixels in ten classes") {
  for (const auto& [name, records] : {std::pair("train.tfrecord", 1437), std::pair("validation.tfrecord", 360)}) {
    const auto source = open_data_source(
        {.format = "tfrecord", .files = list_inputs("tfrecord", {kDirectory + name}), .labels = {.classes = 10}});
    REQUIRE(source->size() == records);
    std::map<int64_t, int> labels;
    Sample sample;
    Image image;
    for (int64_t i = 0; i < source->size(); ++i) {
      source->read(i, sample);
      decode_image(sample.bytes, image);
      REQUIRE(image.height == 8);
      REQUIRE(image.width == 8);
      ++labels[sample.label];
    }
    CHECK(labels.size() == 10);
    for (const auto& [label, count] : labels) CHECK(count > records / 20);
    const LabelRange range = probe_data(*source, 100).labels;
    CHECK(range.smallest == 0);
    CHECK(range.largest == 9);
  }
}

TEST_CASE("the first digit's pixels are the first line of the CSV file, scaled to 0..255") {
  const auto source = open_data_source({.format = "tfrecord", .files = {kDirectory + "validation.tfrecord"}});
  Sample sample;
  Image image;
  source->read(0, sample);
  decode_image(sample.bytes, image);
  const int expected[8] = {0, 0, 5, 13, 9, 1, 0, 0};
  for (size_t x = 0; x < 8; ++x) {
    for (size_t c = 0; c < 3; ++c) CHECK(image.pixels[3 * x + c] == expected[x] * 255 / 16);
  }
  CHECK(sample.label == 0);
}
