#include "data/source/format_sources.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "lockstep/data/source/formats.h"
#include "test/catch.h"

using namespace lockstep;

namespace {

std::unique_ptr<DataSource> open(const SyntheticOptions& options) {
  return open_data_source({.format = "synthetic", .labels = {.classes = 5}, .synthetic = options});
}

std::vector<std::byte> pixels_of(const DataSource& source, int64_t index) {
  Sample sample;
  source.read(index, sample);
  return sample.buffer;
}

double distance(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(std::to_integer<int>(a[i]) - std::to_integer<int>(b[i]));
  return sum / static_cast<double>(a.size());
}

}  // namespace

TEST_CASE("synthetic samples are a pure function of seed, split and index") {
  const auto source = open({.samples = 50, .image_size = 8});
  CHECK(pixels_of(*source, 7) == pixels_of(*open({.samples = 99, .image_size = 8}), 7));
  CHECK(pixels_of(*source, 7) != pixels_of(*source, 8));
  CHECK(pixels_of(*source, 7) != pixels_of(*open({.samples = 50, .image_size = 8, .seed = 2}), 7));
  CHECK(pixels_of(*source, 7) != pixels_of(*open({.samples = 50, .image_size = 8, .split = 1}), 7));
  CHECK(pixels_of(*open({.samples = 1, .image_size = 8, .channels = 1}), 0).size() == 64);
}

TEST_CASE("images of one class are nearer to each other than to other classes, over both splits") {
  const SyntheticOptions options = {.samples = 100, .image_size = 16};
  SyntheticOptions validation = options;
  validation.split = 1;
  const auto train = open(options);
  const auto other = open(validation);
  std::map<int64_t, std::vector<std::byte>> first_of_class;
  Sample sample;
  for (int64_t i = 0; i < train->size(); ++i) {
    train->read(i, sample);
    first_of_class.emplace(sample.label, sample.buffer);
  }
  REQUIRE(first_of_class.size() == 5);
  for (int64_t i = 0; i < other->size(); ++i) {
    other->read(i, sample);
    const auto nearest = std::ranges::min_element(
        first_of_class, {}, [&](const auto& entry) { return distance(entry.second, sample.buffer); });
    REQUIRE(nearest->first == sample.label);
  }
}

TEST_CASE("the labels of synthetic samples are known without making one") {
  const LabelRange range = probe_data(*open({.samples = 1, .image_size = 8}), 100).labels;
  CHECK(range.smallest == 0);
  CHECK(range.largest == 4);
}
