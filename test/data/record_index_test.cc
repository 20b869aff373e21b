#include "data/source/record_index.h"

#include <sys/stat.h>

#include <filesystem>
#include <limits>

#include "test/catch.h"
#include "test/data/record_writer.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

const std::vector<std::string> kRecords = {"first", "", std::string(1000, 'x'), "last one"};

std::string data_error(const std::string& path) {
  try {
    scan_records(InputFile(path), BadRecords::fail);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::data);
    return error.what();
  }
  return "no error";
}

std::string only_entry(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) names.push_back(entry.path());
  REQUIRE(names.size() == 1);
  return names.front();
}

}  // namespace

TEST_CASE("scanning finds every record, empty ones too") {
  const ScratchDirectory directory;
  write_file(directory / "shard", frame_records(kRecords));
  const RecordIndex index = scan_records(InputFile(directory / "shard"), BadRecords::fail);
  CHECK(index.records() == 4);
  CHECK(index.bounds == std::vector<int64_t>{0, 21, 37, 1053, 1077});
}

TEST_CASE("a zero-length shard has no records") {
  const ScratchDirectory directory;
  write_file(directory / "shard", "");
  CHECK(scan_records(InputFile(directory / "shard"), BadRecords::fail).records() == 0);
}

TEST_CASE("damage that hides the following records is an error naming file, record and offset") {
  const ScratchDirectory directory;
  const std::string shard = directory / "train-00001-of-00004";
  const std::string whole = frame_records(kRecords);

  std::string flipped = whole;
  flipped[37] ^= 1;  // the length of record 2
  write_file(shard, flipped);
  CHECK_THAT(data_error(shard),
             ContainsSubstring("train-00001-of-00004: record 2 (offset 37): the checksum of its length is wrong"));

  write_file(shard, whole.substr(0, whole.size() - 3));
  CHECK_THAT(data_error(shard), ContainsSubstring("record 3 (offset 1053): the file is cut off: 8 bytes of data"));

  write_file(shard, whole.substr(0, 1053 + 5));
  CHECK_THAT(data_error(shard), ContainsSubstring("record 3 (offset 1053): the file is cut off inside its header (5 "));

  write_file(shard, "\x1f\x8b\x08 some compressed data");
  CHECK_THAT(data_error(shard), ContainsSubstring("gzip"));
}

TEST_CASE("when bad records are skipped, damage ends the shard there") {
  const ScratchDirectory directory;
  std::string flipped = frame_records(kRecords);
  flipped[37] ^= 1;
  write_file(directory / "shard", flipped);
  CHECK(scan_records(InputFile(directory / "shard"), BadRecords::skip).records() == 2);
}

TEST_CASE("a length near 2^64 with a right checksum is a truncated file, not an overflow") {
  const ScratchDirectory directory;
  const std::string length = little_endian(~uint64_t{0} - 3, 8);
  write_file(directory / "shard", length + masked_checksum(length) + "abcdefgh");
  CHECK_THAT(data_error(directory / "shard"), ContainsSubstring("cut off"));
}

TEST_CASE("a cached index is used while it fits the file, and made again if it is stale or damaged") {
  const ScratchDirectory directory;
  const std::string shard = directory / "shard";
  const std::string cache = directory / "cache";
  write_file(shard, frame_records(std::vector<std::string>(30, std::string(40'000, 'x'))));
  CHECK(load_record_index(InputFile(shard), BadRecords::fail, cache).records() == 30);
  const std::string cached = only_entry(cache);
  const std::string intact = read_file(cached);

  // Proof that it is read: the shard's content is damaged without changing size and time, and nobody notices.
  const auto time = std::filesystem::last_write_time(shard);
  std::string other = read_file(shard);
  other[40'016] ^= 1;
  write_file(shard, other);
  std::filesystem::last_write_time(shard, time);
  CHECK(load_record_index(InputFile(shard), BadRecords::fail, cache).records() == 30);

  // A changed time makes the shard be scanned again, which finds the damage.
  std::filesystem::last_write_time(shard, time + std::chrono::seconds(2));
  CHECK_THROWS_AS(load_record_index(InputFile(shard), BadRecords::fail, cache), Error);

  // Damage to the cache, at any place, is found and repaired.
  other[40'016] ^= 1;
  write_file(shard, other);
  std::filesystem::last_write_time(shard, time);
  for (const size_t at : {size_t{0}, size_t{9}, size_t{33}, intact.size() / 2, intact.size() - 1}) {
    std::string damaged = intact;
    damaged[at] ^= 0x40;
    write_file(cached, damaged);
    CHECK(load_record_index(InputFile(shard), BadRecords::fail, cache).records() == 30);
    CHECK(read_file(only_entry(cache)) == intact);
  }
  for (const size_t length : {size_t{0}, size_t{11}, intact.size() - 8}) {
    write_file(cached, intact.substr(0, length));
    CHECK(load_record_index(InputFile(shard), BadRecords::fail, cache).records() == 30);
    CHECK(read_file(only_entry(cache)) == intact);
  }
}

TEST_CASE("the cached index of a shared directory is for all whom the umask lets") {
  const ScratchDirectory directory;
  const std::string shard = directory / "shard";
  write_file(shard, frame_records(std::vector<std::string>(30, std::string(40'000, 'x'))));
  const mode_t before = ::umask(0002);
  load_record_index(InputFile(shard), BadRecords::fail, directory / "cache");
  ::umask(before);
  CHECK((std::filesystem::status(only_entry(directory / "cache")).permissions() & std::filesystem::perms(0777)) ==
        std::filesystem::perms(0664));
}

TEST_CASE("a cache directory that cannot be made costs nothing but a warning") {
  const ScratchDirectory directory;
  write_file(directory / "shard", frame_records(std::vector<std::string>(30, std::string(40'000, 'x'))));
  write_file(directory / "file", "not a directory");
  CHECK(load_record_index(InputFile(directory / "shard"), BadRecords::fail, directory / "file/cache").records() == 30);
}

TEST_CASE("an index fits a file whose records lie one behind another, each with room for its header") {
  const auto index = [](std::vector<int64_t> bounds) { return RecordIndex{.bounds = std::move(bounds)}; };
  CHECK(fits(index({0, 16, 40}), 40));
  CHECK(fits(index({0}), 0));
  CHECK_FALSE(fits(index({}), 0));
  CHECK_FALSE(fits(index({0, 16, 40}), 41));
  CHECK_FALSE(fits(index({16, 40}), 40));
  CHECK_FALSE(fits(index({0, 15, 40}), 40));
  CHECK_FALSE(fits(index({0, 30, 20, 40}), 40));
  CHECK_FALSE(fits(index({0, std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min(), 40}), 40));
}

TEST_CASE("a cached index with a right checksum and wrong entries is not used") {
  const ScratchDirectory directory;
  const std::string shard = directory / "shard", cache = directory / "cache";
  write_file(shard, frame_records(std::vector<std::string>(30, std::string(40'000, 'x'))));
  load_record_index(InputFile(shard), BadRecords::fail, cache);
  const std::string cached = only_entry(cache), intact = read_file(cached);
  const size_t bounds = intact.size() - 4 - 31 * sizeof(int64_t);
  for (const int64_t wrong : {int64_t{0}, int64_t{8}, int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    std::string changed = intact;
    changed.replace(bounds + sizeof(int64_t), sizeof(int64_t), little_endian(static_cast<uint64_t>(wrong), 8));
    changed.resize(changed.size() - 4);
    changed += little_endian(crc32c(std::as_bytes(std::span(changed))), 4);
    write_file(cached, changed);
    CHECK(load_record_index(InputFile(shard), BadRecords::fail, cache).bounds[1] == 40'016);
    CHECK(read_file(cached) == intact);
  }
}

TEST_CASE("a file that is no TFRecord file is named for what it is") {
  const ScratchDirectory directory;
  const std::string shard = directory / "shard";
  const auto error = [&](const std::string& content) {
    write_file(shard, content);
    return data_error(shard);
  };
  CHECK_THAT(error("\x78\x9c some compressed data"), ContainsSubstring("compressed with zlib; unpack it first"));
  CHECK_THAT(error("PK\x03\x04 some compressed data"), ContainsSubstring("a zip archive; unpack it first"));
  CHECK_THAT(error("<!DOCTYPE html><html></html>"), ContainsSubstring("an HTML or XML page, where a TFRecord file is"));
  CHECK_THAT(error("version https://git-lfs.github.com/spec/v1\noid"), ContainsSubstring("a Git LFS pointer"));
  CHECK_THAT(error("nothing in particular"), ContainsSubstring("damaged, or no TFRecord file"));
}
