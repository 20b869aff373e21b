#include "lockstep/data/source/split_source.h"

#include <set>

#include "lockstep/data/source/formats.h"
#include "test/catch.h"
#include "test/data/record_writer.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

std::unique_ptr<DataSource> synthetic(int64_t samples) {
  return open_data_source(
      {.format = "synthetic", .labels = {.classes = 10}, .synthetic = {.samples = samples, .image_size = 1}});
}

std::set<std::string> names(const DataSource& source) {
  std::set<std::string> all;
  for (int64_t i = 0; i < source.size(); ++i) all.insert(source.where(i));
  return all;
}

}  // namespace

TEST_CASE("a split has every sample on one side, the same in every run") {
  const auto training = split_source(synthetic(1000), {.validation_fraction = 0.2});
  const auto validation = split_source(synthetic(1000), {.validation_fraction = 0.2, .validation = true});
  CHECK(training->size() + validation->size() == 1000);
  CHECK(std::abs(validation->size() - 200) < 40);  // three deviations of 200 draws
  std::set<std::string> all = names(*training);
  for (const std::string& place : names(*validation)) CHECK(all.insert(place).second);
  CHECK(all == names(*synthetic(1000)));
  CHECK(names(*split_source(synthetic(1000), {.validation_fraction = 0.2})) == names(*training));
  // A larger share for training never holds a sample of a smaller one's validation.
  const auto more = names(*split_source(synthetic(1000), {.validation_fraction = 0.3, .validation = true}));
  for (const std::string& place : names(*validation)) CHECK(more.contains(place));
}

TEST_CASE("samples of a split keep content, label rule and place") {
  const ScratchDirectory directory;
  write_file(directory / "train", frame_records({image_example("a", 1), image_example("b", 2), image_example("c", 3)}));
  const auto open = [&](int64_t classes) {
    return split_source(
        open_data_source(
            {.format = "tfrecord", .files = {directory / "train"}, .labels = {.classes = classes, .offset = -1}}),
        {.validation_fraction = 1e-9});
  };
  Sample sample;
  const auto source = open(3);
  REQUIRE(source->size() == 3);
  source->read(2, sample);
  CHECK(sample.label == 2);
  CHECK_THAT(source->where(2), ContainsSubstring("train record 2"));
  CHECK_THROWS_WITH(open(2)->read(2, sample), ContainsSubstring("train record 2") && ContainsSubstring("0..1"));
}

TEST_CASE("a part without samples is an error that names the key") {
  CHECK_THROWS_WITH(split_source(synthetic(3), {.validation_fraction = 1e-9, .validation = true}),
                    ContainsSubstring("data.validation_fraction = 1e-09 leaves none of 3 samples for validation"));
}
