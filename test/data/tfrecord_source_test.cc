#include "data/tfrecord_source.h"

#include <functional>

#include "lockstep/data/formats.h"
#include "test/catch.h"
#include "test/data/record_writer.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

// Three shards of 3, 0 and 2 records; the images are texts that no decoder sees here.
struct Shards {
  ScratchFolder folder;
  std::vector<std::string> contents = {
      frame_records({image_example("a", 1), image_example("bb", 2), image_example("ccc", 3)}), "",
      frame_records({image_example("dddd", 4), image_example("eeeee", 5)})};

  std::unique_ptr<DataSource> open(BadRecords policy = BadRecords::fail) const {
    for (size_t i = 0; i < contents.size(); ++i) {
      write_file(folder / fmt::format("train-{:05}-of-00003", i), contents[i]);
    }
    return open_data_source(
        {.format = "tfrecord", .files = list_inputs("tfrecord", {folder / "train-*"}), .bad_records = policy});
  }
};

std::string image_of(const DataSource& source, int64_t index) {
  Sample sample;
  source.read(index, sample);
  return {reinterpret_cast<const char*>(sample.bytes.data()), sample.bytes.size()};
}

std::string data_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::data);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("records of all shards are numbered through, empty shards included") {
  const Shards shards;
  const auto source = shards.open();
  REQUIRE(source->size() == 5);
  CHECK(image_of(*source, 0) == "a");
  CHECK(image_of(*source, 2) == "ccc");
  CHECK(image_of(*source, 3) == "dddd");
  CHECK(image_of(*source, 4) == "eeeee");
  Sample sample;
  source->read(3, sample);
  CHECK(sample.label == 4);
  CHECK(source->where(3) == "train-00002-of-00003 record 0 (offset 0)");
  CHECK(source->description() == "tfrecord: 5 records in 3 files");
}

TEST_CASE("a flipped payload byte is a bad record that names file, record and offset; others stay readable") {
  Shards shards;
  shards.contents[0][shards.contents[0].size() - 6] ^= 1;
  const auto source = shards.open();
  CHECK_THROWS_AS(image_of(*source, 2), BadRecord);
  CHECK_THAT(data_error([&] { image_of(*source, 2); }),
             ContainsSubstring("train-00000-of-00003 record 2 (offset ") && ContainsSubstring("checksum of its data"));
  CHECK(image_of(*source, 1) == "bb");
}

TEST_CASE("a damaged length fails at the start, or ends its shard when bad records are skipped") {
  Shards shards;
  shards.contents[2][0] ^= 1;
  CHECK_THAT(data_error([&] { shards.open(); }),
             ContainsSubstring("train-00002-of-00003: record 0 (offset 0): the checksum of its length"));
  CHECK(shards.open(BadRecords::skip)->size() == 3);
}

TEST_CASE("shards without any record are an error that gives the number of files") {
  Shards shards;
  shards.contents = {"", "", ""};
  CHECK_THAT(data_error([&] { shards.open(); }), ContainsSubstring("no sample in the 3 inputs"));
}

TEST_CASE("a file that changes after it was indexed is noticed") {
  const Shards shards;
  const auto source = shards.open();
  write_file(shards.folder / "train-00002-of-00003", frame_records({image_example("another size", 4)}));
  CHECK_THAT(data_error([&] { image_of(*source, 3); }), ContainsSubstring("changed after it was indexed"));
}

TEST_CASE("a missing file is an error that names it") {
  CHECK_THAT(data_error([] { open_data_source({.format = "tfrecord", .files = {"/nonexistent/train-1"}}); }),
             ContainsSubstring("/nonexistent/train-1"));
}
