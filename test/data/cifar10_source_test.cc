#include "data/source/format_sources.h"

#include "lockstep/data/source/formats.h"
#include "test/catch.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

// `count` records whose label is their number and whose channels are flat: number, 100 + number, 200 + number.
std::string records(int count) {
  std::string file;
  for (int i = 0; i < count; ++i) {
    file += static_cast<char>(i);
    for (const int level : {i, 100 + i, 200 + i}) file += std::string(1024, static_cast<char>(level));
  }
  return file;
}

std::unique_ptr<DataSource> open(const ScratchDirectory& directory, BadRecords policy = BadRecords::fail) {
  return open_data_source({.format = "cifar10",
                           .files = list_inputs("cifar10", {directory / "data_batch_*.bin"}),
                           .labels = {.classes = 10},
                           .bad_records = policy});
}

}  // namespace

TEST_CASE("CIFAR-10 records are planar pixels after a label byte, numbered through all files") {
  const ScratchDirectory directory;
  write_file(directory / "data_batch_1.bin", records(3));
  write_file(directory / "data_batch_2.bin", records(2));
  const auto source = open(directory);
  REQUIRE(source->size() == 5);
  CHECK(source->class_names()[3] == "cat");
  CHECK(source->where(4) == "data_batch_2.bin record 1 (offset 3073)");
  Sample sample;
  source->read(4, sample);
  CHECK(sample.label == 1);
  CHECK(sample.kind == Sample::Kind::u8);
  REQUIRE(sample.bytes.size() == 3072);
  CHECK(sample.bytes[0] == std::byte{1});
  CHECK(sample.bytes[1024] == std::byte{101});
  CHECK(sample.bytes[3071] == std::byte{201});
}

TEST_CASE("CIFAR-100 records have the superclass before the class, which is the label") {
  const ScratchDirectory directory;
  std::string file;
  for (int i = 0; i < 3; ++i) {
    file += std::string(1, static_cast<char>(7)) + std::string(1, static_cast<char>(90 + i)) +
            std::string(3072, static_cast<char>(i));
  }
  write_file(directory / "train.bin", file);
  const auto source =
      open_data_source({.format = "cifar100", .files = {directory / "train.bin"}, .labels = {.classes = 100}});
  REQUIRE(source->size() == 3);
  Sample sample;
  source->read(2, sample);
  CHECK(sample.label == 92);
  REQUIRE(sample.bytes.size() == 3072);
  CHECK(sample.bytes[0] == std::byte{2});
  CHECK(source->where(2) == "train.bin record 2 (offset 6148)");
  CHECK(source->description() == "CIFAR-100: 3 images in 1 file");
}

TEST_CASE("a CIFAR-10 file with a torn record is an error, or loses its tail when bad records are skipped") {
  const ScratchDirectory directory;
  write_file(directory / "data_batch_1.bin", records(3).substr(0, 3 * 3073 - 10));
  CHECK_THROWS_WITH(open(directory),
                    ContainsSubstring("data_batch_1.bin: ends 3063 bytes after its last whole record"));
  CHECK(open(directory, BadRecords::skip)->size() == 2);
}

TEST_CASE("a label that the data set does not have is refused, whatever the model's classes") {
  const ScratchDirectory directory;
  std::string file = records(2);
  file[3073] = 77;
  write_file(directory / "data_batch_1.bin", file);
  const auto source =
      open_data_source({.format = "cifar10", .files = {directory / "data_batch_1.bin"}, .labels = {.classes = 1000}});
  Sample sample;
  CHECK_NOTHROW(source->read(0, sample));
  CHECK_THROWS_WITH(source->read(1, sample),
                    ContainsSubstring("record 1 (offset 3073): its label is 77, but CIFAR-10 has 0 to 9"));
}

TEST_CASE("files that are no CIFAR-10 in the binary version are named: CIFAR-100, pickles, archives") {
  const ScratchDirectory directory;
  const auto error = [&](const std::string& content) {
    write_file(directory / "data_batch_1.bin", content);
    const auto thrown = error_of([&] { open(directory); });
    return thrown ? std::string(thrown->what()) : "no error";
  };
  CHECK_THAT(error(std::string(3074 * 2, '\1')),
             ContainsSubstring("its size is that of CIFAR-100 data: data.format = \"cifar100\""));
  CHECK_THAT(error("\x80\x02}q\x01(" + std::string(5000, 'x')),
             ContainsSubstring("; the file is a Python pickle, where the binary version of CIFAR-10 is needed"));
  CHECK_THAT(error("\x1f\x8b\x08" + std::string(5000, 'x')),
             ContainsSubstring("; the file is compressed with gzip; unpack it first"));
}
