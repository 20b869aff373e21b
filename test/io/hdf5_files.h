// HDF5 files of one or two small data sets, for tests of what leads from one file to another.
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/io/file.h"
#include "test/catch.h"
#include "test/scratch.h"

namespace lockstep {

inline const std::vector<uint8_t> kPixels = {10, 20, 30, 40, 50, 60};

// Writes [6] bytes, contiguous, as `name`; `before` bytes lie ahead of them in the file.
inline void write_part(const std::string& path, const char* name, size_t before = 0) {
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  REQUIRE(file >= 0);
  const auto add = [&](const char* called, const std::vector<uint8_t>& values) {
    const hsize_t count = values.size();
    const hid_t space = H5Screate_simple(1, &count, nullptr);
    const hid_t dataset = H5Dcreate2(file, called, H5T_NATIVE_UINT8, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    REQUIRE(H5Dwrite(dataset, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
    H5Dclose(dataset);
    H5Sclose(space);
  };
  if (before > 0) add("before", std::vector<uint8_t>(before, 7));
  add(name, kPixels);
  H5Fclose(file);
}

// Adds /`name`, which takes its six bytes from the data set `from` of the file `part`, to the file at `path`.
inline void add_virtual(const std::string& path, const char* name, const char* part, const char* from) {
  const bool exists = path_exists(path);
  const hid_t file = exists ? H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT)
                            : H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  REQUIRE(file >= 0);
  const hsize_t count = kPixels.size();
  const hid_t space = H5Screate_simple(1, &count, nullptr);
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  REQUIRE(H5Pset_virtual(creation, space, part, from, space) >= 0);
  H5Dclose(H5Dcreate2(file, name, H5T_NATIVE_UINT8, space, H5P_DEFAULT, creation, H5P_DEFAULT));
  H5Pclose(creation);
  H5Sclose(space);
  H5Fclose(file);
}

// A file whose /virtual takes its six bytes from /x of part.h5.
inline std::string write_virtual(const ScratchDirectory& directory, const char* part = "part.h5") {
  add_virtual(directory / "virtual.h5", "virtual", part, "/x");
  return directory / "virtual.h5";
}

inline std::string refusal(const std::function<void()>& call, ExitCode code) {
  const auto error = error_of(call);
  REQUIRE(error);
  CHECK(error->code() == code);
  return error->what();
}

}  // namespace lockstep
