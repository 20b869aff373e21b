#include "checkpoint/header.h"

#include <cstring>

#include "lockstep/io/crc64.h"
#include "lockstep/io/file.h"
#include "test/catch.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

std::vector<std::byte> sealed(size_t bytes, int64_t step) {
  std::vector<std::byte> file(bytes, std::byte{0x5A});
  seal_checkpoint(file, step);
  return file;
}

// A header of a later version, as its program would write it.
std::vector<std::byte> of_version(int version) {
  std::string text = fmt::format("lockstep-checkpoint\nversion {}\nshape of things to come\n", version);
  text += fmt::format("header {:016x}\n", crc64(std::as_bytes(std::span(text))));
  text.resize(1000, '\0');
  std::vector<std::byte> file(text.size());
  std::memcpy(file.data(), text.data(), text.size());
  return file;
}

std::string header_error(const std::string& path, std::span<const std::byte> bytes) {
  write_file_atomically(path, bytes, {});
  const auto error = error_of([&] { read_checkpoint_header(path); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::checkpoint);
  return error->what();
}

}  // namespace

TEST_CASE("no run has made a negative number of steps") {
  const ScratchDirectory directory;
  CHECK_THAT(header_error(directory / "a", sealed(1000, -5)),
             ContainsSubstring("damaged checkpoint, its header's step is -5, which no run can have written"));
}

TEST_CASE("a sealed file's header reads back") {
  const ScratchDirectory directory;
  const auto file = sealed(1000, 123'456'789'012);
  write_file_atomically(directory / "a", file, {});
  const CheckpointHeader header = read_checkpoint_header(directory / "a");
  CHECK(header.version == 1);
  CHECK(header.step == 123'456'789'012);
  CHECK(header.file_bytes == 1000);
  CHECK(header.checksum == crc64(std::span(file).subspan(kUserBlockBytes)));
}

TEST_CASE("each kind of wrong file is told from the others") {
  const ScratchDirectory directory;
  const std::string path = directory / "a";
  const auto file = sealed(1000, 5);
  CHECK(header_error(path, {}) == path + ": empty file, no checkpoint");
  CHECK(header_error(path, std::span(file).first(100)) == path + ": truncated checkpoint, 100 bytes");
  CHECK(header_error(path, std::span(file).first(999)) == path + ": truncated checkpoint, 999 of 1000 bytes");
  auto longer = file;
  longer.push_back({});
  CHECK(header_error(path, longer) == path + ": damaged checkpoint, 1001 bytes instead of 1000");
  const std::vector<std::byte> zeros(1000);
  CHECK(header_error(path, zeros) == path + ": not a Lockstep checkpoint");
  CHECK(header_error(path, of_version(12)) ==
        path + ": format version 12 is newer than 1, the newest this program reads; use a newer Lockstep");
  CHECK(error_of([&] { read_checkpoint_header(directory.path()); }).value().what() ==
        directory.path() + ": is a directory, where a file is needed");
}

TEST_CASE("every change of every byte of the header is found") {
  const auto file = sealed(600, 5);
  for (size_t at = 0; at < kUserBlockBytes; ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      auto damaged = file;
      damaged[at] ^= static_cast<std::byte>(1 << bit);
      const auto error = error_of([&] { parse_header(std::span(damaged).first(kUserBlockBytes), 600, "a"); });
      REQUIRE(error);
      REQUIRE(error->code() == ExitCode::checkpoint);
    }
  }
}
