#include "lockstep/data/data_source.h"

#include <limits>

#include "test/catch.h"

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
  const LabelRange range = probe_labels(source, 100);
  CHECK(range.smallest == 3);
  CHECK(range.largest == 9);
  CHECK(probe_labels(source, 1).largest == 4);
}
