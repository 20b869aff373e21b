// HDF5 files that refer to other files, or declare what they do not hold.
#include <hdf5.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <functional>

#include "lockstep/io/file.h"
#include "lockstep/io/hdf5.h"
#include "test/catch.h"
#include "test/io/hdf5_files.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

std::string hostile(const std::string& name) { return LOCKSTEP_HOSTILE_DIR "/" + name; }

// A file whose /linked leads to /x of part.h5, /soft and /group/linked too, and whose /own is its own.
std::string write_master(const ScratchDirectory& directory, const char* part = "part.h5") {
  const std::string path = directory / "master.h5";
  write_part(path, "own");
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  H5Lcreate_external(part, "/x", file, "linked", H5P_DEFAULT, H5P_DEFAULT);
  H5Lcreate_soft("/linked", file, "soft", H5P_DEFAULT, H5P_DEFAULT);
  H5Lcreate_external(part, "/", file, "group", H5P_DEFAULT, H5P_DEFAULT);
  H5Fclose(file);
  return path;
}

// What a file in memory, which stands alone, says to reading `path`.
std::string refusal_in_memory(const std::string& file, const std::string& path) {
  const auto bytes = read_file(file, ExitCode::checkpoint);
  return refusal([&] { Hdf5File::open_image(bytes, "weights.h5", ExitCode::checkpoint).read<float>(path); },
                 ExitCode::checkpoint);
}

}  // namespace

TEST_CASE("what an external link leads to is read from the other file, by the library") {
  const ScratchDirectory directory;
  write_part(directory / "part.h5", "x", 5000);
  const auto file = Hdf5File::open(write_master(directory), ExitCode::data);
  for (const char* path : {"/linked", "/soft", "/group/x"}) {
    CHECK(file.read<uint8_t>(path) == kPixels);
    CHECK(file.dataset(path).info().file_offset == -1);
  }
  const int64_t offset = file.dataset("/own").info().file_offset;
  REQUIRE(offset > 0);
  const auto bytes = read_file(file.name(), ExitCode::data);
  CHECK(std::memcmp(bytes.data() + offset, kPixels.data(), kPixels.size()) == 0);
}

TEST_CASE("a file in memory follows no link out of itself") {
  const ScratchDirectory directory;
  write_part(directory / "part.h5", "x");
  const std::string master = write_master(directory);
  CHECK(
      refusal_in_memory(master, "/linked") ==
      "weights.h5: cannot open data set /linked: it is a link to /x in part.h5; copy what it links to into this file");
  CHECK_THAT(refusal_in_memory(master, "/soft"), ContainsSubstring("a link to /x in part.h5"));
  CHECK_THAT(refusal_in_memory(master, "/group/x"), ContainsSubstring("a link to / in part.h5"));
  const auto bytes = read_file(master, ExitCode::checkpoint);
  const auto file = Hdf5File::open_image(bytes, "weights.h5", ExitCode::checkpoint);
  CHECK(file.read<uint8_t>("/own") == kPixels);
  CHECK_THAT(refusal([&] { file.list("/"); }, ExitCode::checkpoint),
             ContainsSubstring("cannot open group: it is a link"));
  CHECK_THAT(refusal([&] { file.exists("/group/x"); }, ExitCode::checkpoint), ContainsSubstring("it is a link"));
  CHECK(refusal_in_memory(write_virtual(directory), "/virtual") ==
        "weights.h5: /virtual: is a virtual data set, whose values lie elsewhere; copy them into this file");
}

TEST_CASE("a link that leads through groups without end is refused") {
  const ScratchDirectory directory;
  const std::string path = directory / "cycle.h5";
  write_part(path, "own");
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  H5Lcreate_hard(file, "/", file, "root", H5P_DEFAULT, H5P_DEFAULT);  // the root group contains itself
  std::string far;
  for (int i = 0; i < 1000; ++i) far += "/root";
  H5Lcreate_soft((far + "/own").c_str(), file, "far", H5P_DEFAULT, H5P_DEFAULT);
  H5Lcreate_soft("/root/root/own", file, "near", H5P_DEFAULT, H5P_DEFAULT);
  H5Fclose(file);
  CHECK(Hdf5File::open(path, ExitCode::data).read<uint8_t>("/near") == kPixels);
  CHECK_THAT(refusal([&] { Hdf5File::open(path, ExitCode::data).read<uint8_t>("/far"); }, ExitCode::data),
             ContainsSubstring("cycle.h5: the links lead through more than 1000 groups"));
}

TEST_CASE("an external link whose text has no end is an error, on disk, in memory and behind a soft link") {
  const ScratchDirectory directory;
  const std::string path = write_master(directory, "part_part_part_part.h5");
  std::string bytes = read_file(path);
  const std::string text = "part_part_part_part.h5";
  for (size_t at = 0; (at = bytes.find(text, at)) != std::string::npos; at += text.size()) {
    const size_t end = bytes.find('\0', at + text.size() + 1);  // of the object's name, behind the file's
    REQUIRE(end != std::string::npos);
    bytes[end] = 'x';
  }
  write_file(path, bytes);
  for (const char* name : {"/linked", "/soft", "/group/x"}) {
    const auto on_disk = error_of([&] { Hdf5File::open(path, ExitCode::data).dataset(name); });
    REQUIRE(on_disk);
    CHECK(on_disk->code() == ExitCode::data);
    const auto in_memory =
        error_of([&] { Hdf5File::open_image(std::as_bytes(std::span(bytes)), "image", ExitCode::data).dataset(name); });
    REQUIRE(in_memory);
    CHECK_THAT(in_memory->what(), ContainsSubstring("external link"));
  }
  CHECK(error_of([&] { Hdf5File::open(path, ExitCode::data).list("/"); }));
  CHECK(Hdf5File::open(path, ExitCode::data).dataset("/own").read<uint8_t>() == kPixels);
}

TEST_CASE("links to named pipes are refused at once, as is a pipe itself") {
  const ScratchDirectory directory;
  REQUIRE(::mkfifo((directory / "pipe.h5").c_str(), 0600) == 0);
  CHECK_THAT(refusal([&] { Hdf5File::open(directory / "pipe.h5", ExitCode::data); }, ExitCode::data),
             ContainsSubstring(directory / "pipe.h5" + ": is a pipe"));
  const auto master = Hdf5File::open(write_master(directory, "pipe.h5"), ExitCode::data);
  CHECK_THAT(refusal([&] { master.dataset("/linked"); }, ExitCode::data),
             ContainsSubstring("a link to /x in pipe.h5, which is not a regular file"));
  const auto virtually = Hdf5File::open(write_virtual(directory, "pipe.h5"), ExitCode::data);
  CHECK_THAT(refusal([&] { virtually.dataset("/virtual"); }, ExitCode::data),
             ContainsSubstring("/virtual: takes values from pipe.h5, which is not a regular file"));
}

TEST_CASE("values in a raw external file are refused, on disk and in memory") {
  const std::string path = hostile("hdf5_external_storage.h5");
  CHECK(refusal([&] { Hdf5File::open(path, ExitCode::data).dataset("/hidden.0.weight"); }, ExitCode::data) ==
        path +
            ": /hidden.0.weight: keeps its values in another file, /etc/passwd, which is refused; copy them into "
            "this one");
  CHECK_THAT(refusal_in_memory(path, "/hidden.0.weight"), ContainsSubstring("keeps its values in another file"));
}

TEST_CASE("a shape whose product overflows is an error that shows it") {
  const std::string path = hostile("hdf5_images_overflow_segv.h5");
  CHECK(refusal([&] { Hdf5File::open(path, ExitCode::data).dataset("/images"); }, ExitCode::data) ==
        path + ": /images: its shape, [2,1,72057594037927936,256], is of more values than memory can hold");
}

TEST_CASE("values that a small file declares without storing them are not read") {
  const ScratchDirectory directory;
  const std::string path = directory / "large.h5";
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hsize_t count = hsize_t{1} << 31;
  const hid_t space = H5Screate_simple(1, &count, nullptr);
  H5Dclose(H5Dcreate2(file, "w", H5T_NATIVE_FLOAT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  H5Sclose(space);
  H5Fclose(file);
  const auto large = Hdf5File::open(path, ExitCode::data);
  const auto bytes = static_cast<int64_t>(read_regular_file(path, ExitCode::data).size());
  CHECK(large.most_bytes() == bytes * kMostExpansion + kSmallArrays);
  CHECK(large.dataset("/w").info().elements() == int64_t{1} << 31);
  CHECK(refusal([&] { large.read<float>("/w"); }, ExitCode::data) ==
        fmt::format("{}: /w: declares 2147483648 values, more than the {} bytes that a file of this size may take in "
                    "memory",
                    path, large.most_bytes()));
}

TEST_CASE("more chunks than a file can hold are refused before any is looked for") {
  const auto of = [](const std::string& name, const std::string& path) {
    const auto file = Hdf5File::open(hostile(name), ExitCode::data);
    return refusal([&] { file.dataset(path); }, ExitCode::data).substr(hostile(name).size());
  };
  CHECK(of("hdf5_weights_8GB.h5", "/w") ==
        ": /w: its shape, [2147483648], is of more chunks of [1024] than a file of 1400 bytes can have");
  const std::string longer_than_it_may_be = "dim 0 size of 33554432 is greater than maxdim size";
  CHECK_THAT(of("hdf5_weights_slow_60s.h5", "/conv.weight"),
             ContainsSubstring(
                 ": /conv.weight: its shape, [33554432,3,1,1], is of more chunks of [1,3,1,1] than a file of 13144 "
                 "bytes can have") ||
                 ContainsSubstring(longer_than_it_may_be));  // which HDF5 1.14 sees
}

TEST_CASE("elements wider than any number are none") {
  const auto file = Hdf5File::open(hostile("hdf5_library_chunk_overread.h5"), ExitCode::data);
  CHECK_THAT(
      refusal([&] { file.read<float>("/conv.weight"); }, ExitCode::data),
      ContainsSubstring("/conv.weight: holds no numbers") || ContainsSubstring("unused bits"));  // HDF5 1.14 sees that
}

TEST_CASE("a shape of more bytes than are stored in one piece is damage") {
  const ScratchDirectory directory;
  const std::string path = directory / "short.h5";
  const hsize_t count = 1913;
  for (const bool compact : {false, true}) {
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hid_t space = H5Screate_simple(1, &count, nullptr);
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_layout(creation, compact ? H5D_COMPACT : H5D_CONTIGUOUS);
    const hid_t dataset = H5Dcreate2(file, "x", H5T_NATIVE_FLOAT, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    const std::vector<float> values(count, 1.5F);
    REQUIRE(H5Dwrite(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
    H5Dclose(dataset);
    H5Pclose(creation);
    H5Sclose(space);
    H5Fclose(file);
    CHECK(Hdf5File::open(path, ExitCode::data).read<float>("/x") == values);
    auto bytes = read_file(path, ExitCode::data);
    const hsize_t longer = 2913;
    for (size_t i = 0; i + sizeof count <= bytes.size(); ++i) {  // the shape is stored without a checksum
      if (std::memcmp(&bytes[i], &count, sizeof count) == 0) std::memcpy(&bytes[i], &longer, sizeof longer);
    }
    write_file_atomically(path, bytes, {});
    CHECK_THAT(refusal([&] { Hdf5File::open(path, ExitCode::data).dataset("/x"); }, ExitCode::data),
               ContainsSubstring(path + ": /x: damaged, 7652 bytes are stored for the shape [2913]") ||
                   ContainsSubstring(path + ": cannot open data set /x: "));  // HDF5 1.14 compares them as well
  }
}

TEST_CASE("a data set that cannot be opened is an error in a list, and a link without a target is not") {
  const ScratchDirectory directory;
  const std::string path = directory / "damaged.h5";
  const hsize_t count = 1913;
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t space = H5Screate_simple(1, &count, nullptr);
  H5Dclose(H5Dcreate2(file, "x", H5T_NATIVE_FLOAT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  H5Sclose(space);
  H5Lcreate_soft("/nowhere", file, "soft", H5P_DEFAULT, H5P_DEFAULT);
  H5Lcreate_external("nowhere.h5", "/x", file, "external", H5P_DEFAULT, H5P_DEFAULT);
  H5Fclose(file);
  CHECK(Hdf5File::open(path, ExitCode::data).list("/").size() == 3);
  auto bytes = read_file(path, ExitCode::data);
  for (size_t i = 8; i + sizeof count <= bytes.size(); ++i) {  // a shape begins with its version, 8 bytes before it
    if (std::memcmp(&bytes[i], &count, sizeof count) == 0) bytes[i - 8] = std::byte{77};
  }
  write_file_atomically(path, bytes, {});
  CHECK_THAT(refusal([&] { Hdf5File::open(path, ExitCode::data).list("/"); }, ExitCode::data),
             ContainsSubstring(path + ": cannot open x: "));
}

TEST_CASE("many references to one long string take no more memory than the file may") {
  const ScratchDirectory directory;
  const std::string path = directory / "strings.h5";
  constexpr hsize_t kCount = 10'000;
  const std::string text(8000, 'x');
  {
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hid_t space = H5Screate_simple(1, &kCount, nullptr);
    const hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    const hid_t dataset = H5Dcreate2(file, "s", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    std::vector<const char*> values(kCount, "");
    values[0] = text.c_str();
    REQUIRE(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
    H5Dclose(dataset);
    H5Tclose(type);
    H5Sclose(space);
    H5Fclose(file);
  }
  const auto whole = Hdf5File::open(path, ExitCode::data).dataset("/s");
  const auto strings = whole.read_strings();
  REQUIRE(strings.size() == kCount);
  CHECK(strings[0] == text);
  CHECK(strings[1].empty());
  const int64_t offset = whole.info().file_offset;
  REQUIRE(offset > 0);
  auto bytes = read_file(path, ExitCode::data);
  constexpr size_t kReference = 16;  // length, address and number of a string
  for (size_t i = 1; i < kCount; ++i) {
    std::memcpy(&bytes[static_cast<size_t>(offset) + i * kReference], &bytes[static_cast<size_t>(offset)], kReference);
  }
  write_file_atomically(path, bytes, {});
  CHECK_THAT(refusal([&] { Hdf5File::open(path, ExitCode::data).dataset("/s").read_strings(); }, ExitCode::data),
             ContainsSubstring("/s: its strings are longer than"));
}

TEST_CASE("a data set without values reads as none") {
  const ScratchDirectory directory;
  const std::string path = directory / "null.h5";
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t space = H5Screate(H5S_NULL);
  H5Dclose(H5Dcreate2(file, "x", H5T_NATIVE_FLOAT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  H5Sclose(space);
  H5Fclose(file);
  CHECK(Hdf5File::open(path, ExitCode::data).read<float>("/x").empty());
}
