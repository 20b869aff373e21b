// Virtual data sets, whose values lie in others.
#include <hdf5.h>
#include <unistd.h>

#include "lockstep/io/file.h"
#include "lockstep/io/hdf5.h"
#include "test/catch.h"
#include "test/io/hdf5_files.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

std::vector<uint8_t> values_of(const std::string& path, const std::string& name = "/virtual") {
  return Hdf5File::open(path, ExitCode::data).read<uint8_t>(name);
}

std::string refusal_of(const std::string& path, const std::string& name = "/virtual") {
  return refusal([&] { Hdf5File::open(path, ExitCode::data).dataset(name); }, ExitCode::data);
}

}  // namespace

TEST_CASE("a virtual data set on disk is read from its sources") {
  const ScratchDirectory directory;
  write_part(directory / "part.h5", "x", 5000);
  const auto file = Hdf5File::open(write_virtual(directory), ExitCode::data);
  CHECK(file.read<uint8_t>("/virtual") == kPixels);
  CHECK(file.dataset("/virtual").info().file_offset == -1);
}

TEST_CASE("a virtual data set whose source is not there or damaged is an error, not fill values") {
  const ScratchDirectory directory;
  const std::string path = write_virtual(directory);
  CHECK(refusal([&] { Hdf5File::open(path, ExitCode::data).dataset("/virtual"); }, ExitCode::data) ==
        path + ": /virtual: takes values from part.h5, which does not exist or cannot be read; put it beside " + path);
  write_part(directory / "part.h5", "y");
  CHECK_THAT(refusal([&] { Hdf5File::open(path, ExitCode::data).dataset("/virtual"); }, ExitCode::data),
             ContainsSubstring("takes values from /x in " + directory / "part.h5, which has no such data set"));
  write_part(directory / "part.h5", "x", 5000);
  const std::string whole = read_file(directory / "part.h5");
  write_file(directory / "part.h5", whole.substr(0, whole.size() / 2));
  CHECK_THAT(refusal([&] { Hdf5File::open(path, ExitCode::data).dataset("/virtual"); }, ExitCode::data),
             ContainsSubstring(directory / "part.h5: cannot open as HDF5"));
  write_file(directory / "part.h5", whole);
  const ScratchDirectory other;
  REQUIRE(::symlink(path.c_str(), (other / "linked.h5").c_str()) == 0);
  CHECK(Hdf5File::open(other / "linked.h5", ExitCode::data).read<uint8_t>("/virtual") == kPixels);
}

TEST_CASE("a source of a source that is not there is an error that names it, however deep it lies") {
  const ScratchDirectory directory;
  add_virtual(directory / "virtual.h5", "virtual", "a.h5", "a");
  add_virtual(directory / "a.h5", "a", "b.h5", "/b");
  add_virtual(directory / "b.h5", "b", ".", "/c");
  add_virtual(directory / "b.h5", "c", "part.h5", "/x");
  write_part(directory / "part.h5", "x");
  CHECK(values_of(directory / "virtual.h5") == kPixels);
  REQUIRE(remove_file(directory / "part.h5"));
  const std::string missing =
      directory / "b.h5: /c: takes values from part.h5, which does not exist or cannot be read; " + "put it beside " +
      directory.path() + "/b.h5";
  CHECK(refusal_of(directory / "virtual.h5") == missing);
  CHECK(refusal_of(directory / "b.h5", "/b") == missing);
  write_part(directory / "part.h5", "y");
  CHECK_THAT(refusal_of(directory / "virtual.h5"),
             ContainsSubstring("takes values from /x in " + directory.path() + "/part.h5"));
}

TEST_CASE("a link to a source that leads nowhere, or to something else than a data set, is an error") {
  const ScratchDirectory directory;
  const std::string path = write_virtual(directory);
  write_part(directory / "part.h5", "y");
  const auto link_x = [&](const char* target) {
    const hid_t file = H5Fopen((directory / "part.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    H5Ldelete(file, "x", H5P_DEFAULT);
    H5Eclear2(H5E_DEFAULT);
    H5Lcreate_soft(target, file, "x", H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(file);
  };
  link_x("/y");
  CHECK(values_of(path) == kPixels);
  link_x("/gone");
  CHECK_THAT(refusal_of(path), ContainsSubstring(directory / "part.h5: cannot open data set /x"));
  link_x("/");
  CHECK_THAT(refusal_of(path), ContainsSubstring(directory / "part.h5: /x is not a data set"));
}

TEST_CASE("virtual data sets that take values from themselves, or nest without end, are errors") {
  const ScratchDirectory directory;
  add_virtual(directory / "self.h5", "virtual", ".", "/virtual");
  CHECK_THAT(refusal_of(directory / "self.h5"), ContainsSubstring("which takes its own from there again"));
  add_virtual(directory / "a.h5", "virtual", "b.h5", "/virtual");
  add_virtual(directory / "b.h5", "virtual", "a.h5", "/virtual");
  CHECK_THAT(refusal_of(directory / "a.h5"), ContainsSubstring("takes values from /virtual in ") &&
                                                 ContainsSubstring("which takes its own from there again"));
  write_part(directory / "chain.h5", "0");
  for (int i = 0; i < 18; ++i) {
    add_virtual(directory / "chain.h5", std::to_string(i + 1).c_str(), ".", std::to_string(i).c_str());
  }
  CHECK(values_of(directory / "chain.h5", "/16") == kPixels);
  CHECK_THAT(refusal_of(directory / "chain.h5", "/17"), ContainsSubstring("take values from others more than 16 deep"));
}

TEST_CASE("sources that meet again further down are looked at once a depth") {
  const ScratchDirectory directory;
  const std::string path = directory / "a.h5";
  write_part(path, "0_0");
  const hsize_t count = kPixels.size(), one = 1;
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  const hid_t space = H5Screate_simple(1, &count, nullptr);
  const auto name = [](int level, hsize_t way) { return fmt::format("{}_{}", level, way); };
  constexpr int kLevels = 12;  // 6^12 ways lead to the last
  for (int level = 0; level <= kLevels; ++level) {
    if (level > 0) {
      const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
      for (hsize_t way = 0; way < count; ++way) {
        const hid_t part = H5Scopy(space);
        H5Sselect_hyperslab(part, H5S_SELECT_SET, &way, nullptr, &one, nullptr);
        REQUIRE(H5Pset_virtual(creation, part, ".", name(level - 1, way).c_str(), part) >= 0);
        H5Sclose(part);
      }
      H5Dclose(H5Dcreate2(file, name(level, 0).c_str(), H5T_NATIVE_UINT8, space, H5P_DEFAULT, creation, H5P_DEFAULT));
      H5Pclose(creation);
    }
    for (hsize_t way = 1; way < count; ++way) {
      H5Lcreate_hard(file, name(level, 0).c_str(), file, name(level, way).c_str(), H5P_DEFAULT, H5P_DEFAULT);
    }
  }
  H5Sclose(space);
  H5Fclose(file);
  CHECK_NOTHROW(Hdf5File::open(path, ExitCode::data).dataset("/" + name(kLevels, 0)));
}

TEST_CASE("a source that keeps its values in a raw external file is refused as any data set is") {
  const ScratchDirectory directory;
  add_virtual(directory / "virtual.h5", "virtual", LOCKSTEP_HOSTILE_DIR "/hdf5_external_storage.h5",
              "/hidden.0.weight");
  CHECK_THAT(refusal_of(directory / "virtual.h5"),
             ContainsSubstring("/hidden.0.weight: keeps its values in another file, /etc/passwd"));
}

TEST_CASE("sources that are numbered are looked at up to the first that is not there") {
  const ScratchDirectory directory;
  const std::string path = directory / "virtual.h5";
  const hsize_t none = 0, unlimited = H5S_UNLIMITED, block = kPixels.size(), start = 0;
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t space = H5Screate_simple(1, &none, &unlimited);
  const hid_t selection = H5Screate_simple(1, &none, &unlimited), source = H5Screate_simple(1, &block, nullptr);
  REQUIRE(H5Sselect_hyperslab(selection, H5S_SELECT_SET, &start, &block, &unlimited, &block) >= 0);
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  REQUIRE(H5Pset_virtual(creation, selection, "part%b.h5", "x", source) >= 0);
  H5Dclose(H5Dcreate2(file, "virtual", H5T_NATIVE_UINT8, space, H5P_DEFAULT, creation, H5P_DEFAULT));
  H5Pclose(creation);
  for (const hid_t id : {space, selection, source}) H5Sclose(id);
  H5Fclose(file);
  write_part(directory / "part0.h5", "x");
  add_virtual(directory / "part1.h5", "x", "gone.h5", "/x");
  CHECK_THAT(refusal_of(path), ContainsSubstring(directory / "part1.h5: /x: takes values from gone.h5"));
  write_part(directory / "gone.h5", "x");
  std::vector<uint8_t> both = kPixels;
  both.insert(both.end(), kPixels.begin(), kPixels.end());
  CHECK(values_of(path) == both);
}

TEST_CASE("a percent sign in a source's name is written twice, as the library has it") {
  const ScratchDirectory directory;
  add_virtual(directory / "virtual.h5", "virtual", "100%%.h5", "/x");
  CHECK_THAT(refusal_of(directory / "virtual.h5"),
             ContainsSubstring("takes values from 100%.h5, which does not exist"));
  write_part(directory / "100%.h5", "x");
  CHECK(values_of(directory / "virtual.h5") == kPixels);
}

TEST_CASE("a source that has fewer values than are taken from it is an error") {
  const ScratchDirectory directory;
  const std::string path = write_virtual(directory);
  const hsize_t count = 3;
  const hid_t file = H5Fcreate((directory / "part.h5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t space = H5Screate_simple(1, &count, nullptr);
  const hid_t dataset = H5Dcreate2(file, "x", H5T_NATIVE_UINT8, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  REQUIRE(H5Dwrite(dataset, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, kPixels.data()) >= 0);
  H5Dclose(dataset);
  H5Sclose(space);
  H5Fclose(file);
  CHECK_THAT(refusal([&] { values_of(path); }, ExitCode::data), ContainsSubstring("/virtual: cannot read: can't "));
}
