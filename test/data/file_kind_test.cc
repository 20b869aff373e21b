#include "data/source/file_kind.h"

#include <string>

#include "test/catch.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

std::string_view kind_of(const std::string& content) { return name_file_kind(std::as_bytes(std::span(content))); }

}  // namespace

TEST_CASE("files are named by their first bytes") {
  CHECK(kind_of("") == "empty");
  CHECK(kind_of("\x1f\x8b\x08") == "compressed with gzip");
  CHECK(kind_of("\x78\x9c....") == "compressed with zlib");
  CHECK(kind_of("PK\x03\x04") == "a zip archive");
  CHECK(kind_of(std::string("\xfd\x37zXZ\0", 6)) == "compressed with xz");
  CHECK(kind_of("\x28\xb5\x2f\xfd") == "compressed with zstd");
  CHECK(kind_of("BZh91AY") == "compressed with bzip2");
  CHECK(kind_of(std::string(257, '\0') + "ustar") == "a tar archive");
  CHECK(kind_of("\n<!DOCTYPE html>") == "an HTML or XML page");
  CHECK_THAT(std::string(kind_of("version https://git-lfs.github.com/spec/v1\n")),
             ContainsSubstring("Git LFS pointer") && ContainsSubstring("git lfs pull"));
  CHECK(kind_of("\x80\x02}q\x01(") == "a Python pickle");
  CHECK(kind_of("\x89HDF\r\n\x1a\n") == "an HDF5 file");
  CHECK(kind_of("\xff\xd8\xff\xe0") == "a JPEG image");
  CHECK(kind_of("nothing in particular").empty());
}

TEST_CASE("a file of another kind is named, with what to do, and one of the kind that is wanted is not") {
  const ScratchDirectory directory;
  const auto describe = [&](const std::string& content) {
    write_file(directory / "a", content);
    return describe_other_kind(InputFile(directory / "a"), "an HDF5 file");
  };
  CHECK(describe("\x1f\x8b\x08") == "the file is compressed with gzip; unpack it first");
  CHECK(describe("\x78\x9c....") == "the file is compressed with zlib; unpack it first");
  CHECK(describe("\xff\xd8\xff\xe0") == "the file is a JPEG image, where an HDF5 file is needed");
  CHECK(describe("") == "the file is empty, where an HDF5 file is needed");
  CHECK(describe("\x89HDF\r\n\x1a\n").empty());
  CHECK(describe("nothing in particular").empty());
}
