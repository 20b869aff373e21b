#include "data/source/format_sources.h"

#include <sys/stat.h>

#include <filesystem>
#include <functional>

#include "lockstep/data/source/formats.h"
#include "test/catch.h"
#include "test/data/record_writer.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

// Three shards of 3, 0 and 2 records; the images are texts that no decoder sees here.
struct Shards {
  ScratchDirectory directory;
  std::vector<std::string> contents = {
      frame_records({image_example("a", 1), image_example("bb", 2), image_example("ccc", 3)}), "",
      frame_records({image_example("dddd", 4), image_example("eeeee", 5)})};

  std::unique_ptr<DataSource> open(BadRecords policy = BadRecords::fail) const {
    for (size_t i = 0; i < contents.size(); ++i) {
      write_file(directory / fmt::format("train-{:05}-of-00003", i), contents[i]);
    }
    return open_data_source(
        {.format = "tfrecord", .files = list_inputs("tfrecord", {directory / "train-*"}), .bad_records = policy});
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

TEST_CASE("the names of classes are those of the file beside the records, with or without a last line feed") {
  const Shards shards;
  CHECK(shards.open()->class_names().empty());
  for (const char* text : {"ant\nbee\n", "ant\nbee"}) {
    write_file(shards.directory / "lockstep_classes.txt", text);
    CHECK(shards.open()->class_names() == std::vector<std::string>{"ant", "bee"});
  }
}

TEST_CASE("a flipped payload byte is a bad record that names file, record and offset, and others stay readable") {
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
  write_file(shards.directory / "train-00002-of-00003", frame_records({image_example("another size", 4)}));
  CHECK_THAT(data_error([&] { image_of(*source, 3); }), ContainsSubstring("changed after it was indexed"));
}

TEST_CASE("a missing file is an error that names it") {
  CHECK_THAT(data_error([] { open_data_source({.format = "tfrecord", .files = {"/nonexistent/train-1"}}); }),
             ContainsSubstring("/nonexistent/train-1"));
}

TEST_CASE("what is left out of files that end early or cannot be opened is counted") {
  Shards shards;
  CHECK(shards.open()->left_out().files == 0);
  shards.contents[2].resize(shards.contents[2].size() - 3);
  const auto source = shards.open(BadRecords::skip);
  CHECK(source->size() == 4);
  CHECK(source->left_out().files == 1);
  CHECK(source->left_out().bytes == std::ssize(frame_record(image_example("eeeee", 5))) - 3);

  const ScratchDirectory directory;
  write_file(directory / "whole", frame_record(image_example("a", 1)));
  REQUIRE(::mkfifo((directory / "pipe").c_str(), 0600) == 0);
  const auto open = [&](BadRecords policy) {
    return open_data_source(
        {.format = "tfrecord", .files = {directory / "pipe", directory / "whole"}, .bad_records = policy});
  };
  CHECK_THAT(data_error([&] { open(BadRecords::fail); }),
             ContainsSubstring("/pipe: is a pipe, where a file is needed"));
  CHECK(open(BadRecords::skip)->size() == 1);
  CHECK(open(BadRecords::skip)->left_out().files == 1);
}

TEST_CASE("a record of more bytes than a message can have is a bad record, and no memory is asked for") {
  const ScratchDirectory directory;
  constexpr uint64_t kBytes = uint64_t{8} << 30;
  const std::string length = little_endian(kBytes, 8);
  write_file(directory / "big", length + masked_checksum(length));
  std::filesystem::resize_file(directory / "big", kBytes + 16);  // holes, no blocks
  const auto source = open_data_source({.format = "tfrecord", .files = {directory / "big"}});
  CHECK_THROWS_AS(image_of(*source, 0), BadRecord);
  CHECK_THAT(data_error([&] { image_of(*source, 0); }),
             ContainsSubstring("big record 0 (offset 0): it has 8589934608 bytes; a tf.train.Example has at most"));
}

TEST_CASE("the name of a file is printed without what a terminal acts on") {
  const ScratchDirectory directory;
  write_file(directory / "a\x1b[2Jb", frame_record(image_example("a", 1)));
  CHECK(open_data_source({.format = "tfrecord", .files = {directory / "a\x1b[2Jb"}})->where(0) ==
        "a\\x1b[2Jb record 0 (offset 0)");
}
