#include "lockstep/data/source/data_source.h"

#include <filesystem>
#include <limits>
#include <new>

#include "lockstep/data/source/formats.h"
#include "test/catch.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

// Hands out the given labels; record 2 is bad.
class Labels final : public DataSource {
 public:
  Labels(LabelRule rule, std::vector<int64_t> labels) : DataSource(rule), labels_(std::move(labels)) {}
  int64_t size() const override { return std::ssize(labels_); }
  std::string where(int64_t index) const override { return fmt::format("record {}", index); }
  std::string description() const override { return "labels"; }

 private:
  void fetch(int64_t index, Sample& sample) const override {
    if (index == 2) throw BadRecord("damaged");
    sample.label = labels_[static_cast<size_t>(index)];
  }
  std::vector<int64_t> labels_;
};

// One sample: floating-point pixels, or sparse values; or a record for which there is no memory.
class Numbers final : public DataSource {
 public:
  Numbers(Sample::Kind kind, std::vector<float> numbers) : DataSource({}), kind_(kind), numbers_(std::move(numbers)) {}
  int64_t size() const override { return 1; }
  std::string where(int64_t) const override { return "a.h5 image 0"; }
  std::string description() const override { return "numbers"; }

 private:
  void fetch(int64_t, Sample& sample) const override {
    if (numbers_.empty()) throw std::bad_alloc();
    sample.kind = kind_;
    sample.bytes = std::as_bytes(std::span(numbers_));
    sample.values = numbers_;
    sample.ids.assign(numbers_.size(), 1);
  }
  Sample::Kind kind_;
  std::vector<float> numbers_;
};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::string bad_record(const DataSource& source) {
  Sample sample;
  try {
    source.read(0, sample);
  } catch (const BadRecord& bad) {
    return bad.what();
  }
  return "no bad record";
}

int64_t label_of(const DataSource& source, int64_t index) {
  Sample sample;
  source.read(index, sample);
  return sample.label;
}

}  // namespace

TEST_CASE("the offset is added before the range is checked") {
  const Labels source({.classes = 3, .offset = -1}, {1, 3, 0, 0, 4});
  CHECK(label_of(source, 0) == 0);
  CHECK(label_of(source, 1) == 2);
  CHECK_THROWS_WITH(label_of(source, 3), ContainsSubstring("record 3: label -1 (stored as 0, data.label_offset = -1)"));
  CHECK_THROWS_WITH(label_of(source, 4), ContainsSubstring("allowed range 0..2"));
}

TEST_CASE("labels beyond any class are refused even when the number of classes is not known") {
  const Labels source({.offset = 1}, {5, int64_t{1} << 31, 0, std::numeric_limits<int64_t>::max(), -1});
  CHECK(label_of(source, 0) == 6);
  CHECK_THROWS_AS(label_of(source, 1), Error);
  CHECK_THROWS_AS(label_of(source, 3), Error);
  CHECK(label_of(source, 4) == 0);
}

TEST_CASE("a bad record is named, and passed over when labels are probed") {
  const Labels source({.classes = 10}, {4, 7, 0, 9, 3});
  CHECK_THROWS_WITH(label_of(source, 2), "record 2: damaged");
  const LabelRange range = probe_data(source, 100).labels;
  CHECK(range.smallest == 3);
  CHECK(range.largest == 9);
  CHECK(probe_data(source, 1).labels.largest == 4);
}

TEST_CASE("numbers that are not finite are a bad record, in images and in sparse values") {
  CHECK(bad_record(Numbers(Sample::Kind::f32, {0.5F, -1e38F, 3e38F})) == "no bad record");
  CHECK_THAT(bad_record(Numbers(Sample::Kind::f32, {0.5F, 1.0F, kNan})),
             ContainsSubstring("a.h5 image 0: pixel value 2 is nan"));
  CHECK_THAT(bad_record(Numbers(Sample::Kind::f32, {-kInfinity})), ContainsSubstring("pixel value 0 is -inf"));
  CHECK_THAT(bad_record(Numbers(Sample::Kind::sparse, {1, kInfinity})), ContainsSubstring("value 1 is inf"));
  CHECK(bad_record(Numbers(Sample::Kind::u8, {kNan})) == "no bad record");
}

TEST_CASE("a record for which there is not enough memory is a bad record, named") {
  CHECK(bad_record(Numbers(Sample::Kind::f32, {})) == "a.h5 image 0: there is not enough memory to read it");
}

TEST_CASE("the probe counts the records that it read, and has the range of floating-point pixels") {
  const DataProbe labels = probe_data(Labels({.classes = 10}, {4, 7, 0, 9, 3}), 100);
  CHECK(labels.records == 4);
  CHECK_FALSE(labels.pixels);
  const DataProbe pixels = probe_data(Numbers(Sample::Kind::f32, {0.5F, -1.0F, 254.0F}), 100);
  REQUIRE(pixels.pixels);
  CHECK(pixels.pixels->smallest == -1.0F);
  CHECK(pixels.pixels->largest == 254.0F);
}

TEST_CASE("an input that two data sets share is found, under another name too") {
  const ScratchDirectory directory;
  const std::string record(3073, '\0');
  for (const char* name : {"a.bin", "b.bin", "c.bin"}) write_file(directory / name, record);
  std::filesystem::create_symlink(directory / "b.bin", directory / "link.bin");
  const auto open = [&](const std::vector<std::string>& names) {
    std::vector<std::string> files;
    for (const std::string& name : names) files.push_back(directory / name);
    return open_data_source({.format = "cifar10", .files = files});
  };
  CHECK(shared_input(*open({"a.bin"}), *open({"b.bin", "c.bin"})).empty());
  CHECK(shared_input(*open({"a.bin", "b.bin"}), *open({"c.bin", "b.bin"})) == directory / "b.bin");
  CHECK(shared_input(*open({"a.bin", "b.bin"}), *open({"link.bin"})) ==
        directory / "b.bin" + " and " + (directory / "link.bin"));
}
