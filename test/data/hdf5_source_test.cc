#include "data/source/format_sources.h"

#include <hdf5.h>

#include <cstring>
#include <thread>

#include "lockstep/data/source/formats.h"
#include "lockstep/io/file.h"
#include "test/catch.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

struct DatasetSpec {
  const char* name;
  hid_t type;         // in the file
  hid_t memory_type;  // of `values`
  std::vector<hsize_t> dims;
  const void* values;
  bool chunked = false;
};

void write_hdf5(const std::string& path, const std::vector<DatasetSpec>& datasets) {
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  REQUIRE(file >= 0);
  for (const DatasetSpec& spec : datasets) {
    const hid_t space = H5Screate_simple(static_cast<int>(spec.dims.size()), spec.dims.data(), nullptr);
    const hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
    if (spec.chunked) {
      H5Pset_chunk(plist, static_cast<int>(spec.dims.size()), spec.dims.data());
      H5Pset_deflate(plist, 1);
    }
    const hid_t dataset = H5Dcreate2(file, spec.name, spec.type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    REQUIRE(H5Dwrite(dataset, spec.memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, spec.values) >= 0);
    H5Dclose(dataset);
    H5Pclose(plist);
    H5Sclose(space);
  }
  H5Fclose(file);
}

std::unique_ptr<DataSource> open(const std::vector<std::string>& files) {
  return open_data_source({.format = "hdf5", .files = files});
}

const std::vector<int64_t> kLabels = {3, 1, 4, 1, 5};

}  // namespace

TEST_CASE("uint8 images are read by offset when contiguous and through the library when chunked") {
  const ScratchDirectory directory;
  std::vector<uint8_t> pixels(5 * 3 * 2 * 4);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i);
  for (const bool chunked : {false, true}) {
    write_hdf5(directory / "data.h5",
               {{"/images", H5T_NATIVE_UINT8, H5T_NATIVE_UINT8, {5, 3, 2, 4}, pixels.data(), chunked},
                {"/labels", H5T_STD_I32LE, H5T_NATIVE_INT64, {5}, kLabels.data()}});
    const auto source = open({directory / "data.h5"});
    REQUIRE(source->size() == 5);
    std::vector<std::jthread> threads;
    std::vector<int> wrong(4, 0);
    for (size_t t = 0; t < wrong.size(); ++t) {
      threads.emplace_back([&, t] {
        Sample sample;
        for (int64_t i = 0; i < 200; ++i) {
          const int64_t index = (i + static_cast<int64_t>(t)) % 5;
          source->read(index, sample);
          const bool right = sample.kind == Sample::Kind::u8 && sample.bytes.size() == 24 && sample.height == 2 &&
                             sample.width == 4 && sample.label == kLabels[static_cast<size_t>(index)] &&
                             std::memcmp(sample.bytes.data(), pixels.data() + index * 24, 24) == 0;
          wrong[t] += right ? 0 : 1;
        }
      });
    }
    threads.clear();
    CHECK(wrong == std::vector<int>(4, 0));
  }
}

TEST_CASE("floating-point images of any kind arrive as float32") {
  const ScratchDirectory directory;
  const std::vector<float> pixels = {0.0F, 0.25F, 0.5F, 1.0F};
  const std::vector<int64_t> labels = {0, 1};
  for (const hid_t type : {H5T_IEEE_F32LE, H5T_IEEE_F32BE, H5T_IEEE_F64LE}) {
    write_hdf5(directory / "data.h5", {{"/images", type, H5T_NATIVE_FLOAT, {2, 1, 1, 2}, pixels.data()},
                                       {"/labels", H5T_NATIVE_UINT8, H5T_NATIVE_INT64, {2}, labels.data()}});
    const auto source = open({directory / "data.h5"});
    Sample sample;
    source->read(1, sample);
    REQUIRE(sample.kind == Sample::Kind::f32);
    REQUIRE(sample.bytes.size() == 8);
    CHECK(std::memcmp(sample.bytes.data(), pixels.data() + 2, 8) == 0);
    CHECK(sample.label == 1);
  }
}

TEST_CASE("several files are numbered through, and messages name file and image") {
  const ScratchDirectory directory;
  const std::vector<uint8_t> pixels(5, 0);
  for (const char* name : {"a.h5", "b.h5"}) {
    write_hdf5(directory / name, {{"/images", H5T_NATIVE_UINT8, H5T_NATIVE_UINT8, {5, 1, 1, 1}, pixels.data()},
                                  {"/labels", H5T_NATIVE_INT64, H5T_NATIVE_INT64, {5}, kLabels.data()}});
  }
  const auto source = open(list_inputs("hdf5", {directory / "*.h5"}));
  CHECK(source->size() == 10);
  CHECK(source->where(7) == "b.h5 image 2");
  Sample sample;
  source->read(7, sample);
  CHECK(sample.label == 4);
}

TEST_CASE("files of another shape are errors that say what is needed") {
  const ScratchDirectory directory;
  const std::string path = directory / "data.h5";
  const std::vector<uint8_t> pixels(60, 0);
  const auto data_error = [&](const std::vector<DatasetSpec>& datasets) -> std::string {
    write_hdf5(path, datasets);
    try {
      open({path});
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::data);
      return error.what();
    }
    return "no error";
  };
  const DatasetSpec images = {"/images", H5T_NATIVE_UINT8, H5T_NATIVE_UINT8, {5, 3, 2, 2}, pixels.data()};
  const DatasetSpec labels = {"/labels", H5T_NATIVE_INT64, H5T_NATIVE_INT64, {5}, kLabels.data()};
  CHECK_THAT(data_error({images}), ContainsSubstring("/labels"));
  CHECK_THAT(data_error({labels}), ContainsSubstring("/images"));
  DatasetSpec fewer = labels;
  fewer.dims = {4};
  CHECK_THAT(data_error({images, fewer}), ContainsSubstring("must hold 5 integers"));
  DatasetSpec flat = images;
  flat.dims = {5, 12};
  CHECK_THAT(data_error({flat, labels}), ContainsSubstring("[N,C,H,W]"));
  DatasetSpec channels = images;
  channels.dims = {5, 2, 3, 2};
  CHECK_THAT(data_error({channels, labels}), ContainsSubstring("1 or 3 channels"));
  DatasetSpec wide = images;
  wide.type = H5T_NATIVE_INT32;
  CHECK_THAT(data_error({wide, labels}), ContainsSubstring("uint8 or floating-point"));
}

TEST_CASE("channels-last images arrive channels-first, of bytes and of floats, read by offset and by the library") {
  const ScratchDirectory directory;
  std::vector<uint8_t> pixels(2 * 4 * 2 * 3);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i);
  const std::vector<int64_t> labels = {0, 1};
  for (const bool chunked : {false, true}) {
    for (const hid_t type : {H5T_NATIVE_UINT8, H5T_NATIVE_FLOAT}) {
      write_hdf5(directory / "data.h5", {{"/images", type, H5T_NATIVE_UINT8, {2, 4, 2, 3}, pixels.data(), chunked},
                                         {"/labels", H5T_NATIVE_INT64, H5T_NATIVE_INT64, {2}, labels.data()}});
      const auto source = open({directory / "data.h5"});
      CHECK_THAT(source->description(), ContainsSubstring("channels last ([N,H,W,C])"));
      Sample sample;
      source->read(1, sample);
      CHECK(sample.channels == 3);
      CHECK(sample.height == 4);
      CHECK(sample.width == 2);
      const bool bytes = sample.kind == Sample::Kind::u8;
      REQUIRE(sample.bytes.size() == 24 * (bytes ? 1 : sizeof(float)));
      for (size_t c = 0; c < 3; ++c) {
        for (size_t p = 0; p < 8; ++p) {
          float value = static_cast<float>(sample.bytes[c * 8 + p]);
          if (!bytes) std::memcpy(&value, sample.bytes.data() + (c * 8 + p) * sizeof value, sizeof value);
          CHECK(value == static_cast<float>(pixels[24 + p * 3 + c]));
        }
      }
    }
  }
}

TEST_CASE("labels may be a column") {
  const ScratchDirectory directory;
  const std::vector<uint8_t> pixels(5, 0);
  write_hdf5(directory / "data.h5", {{"/images", H5T_NATIVE_UINT8, H5T_NATIVE_UINT8, {5, 1, 1, 1}, pixels.data()},
                                     {"/labels", H5T_NATIVE_INT32, H5T_NATIVE_INT64, {5, 1}, kLabels.data()}});
  Sample sample;
  open({directory / "data.h5"})->read(2, sample);
  CHECK(sample.label == 4);
}

TEST_CASE("a file of another kind is named, a damaged HDF5 file is not") {
  const ScratchDirectory directory;
  const std::string path = directory / "data.h5";
  const auto message = [&](std::string_view text) {
    write_text_atomically(path, std::string(text), ExitCode::data);
    return error_of([&] { open({path}); }).value().what();
  };
  CHECK(message("PK\x03\x04 and so on") == path + ": the file is a zip archive; unpack it first");
  CHECK(message("<html></html>") == path + ": the file is an HTML or XML page, where an HDF5 file is needed");
  CHECK(message("") == path + ": the file is empty, where an HDF5 file is needed");
  CHECK_THAT(message("1,2,3"), ContainsSubstring("data.h5: cannot open as HDF5: "));
  CHECK_THAT(message("\x89HDF\r\n\x1a\n"), ContainsSubstring("data.h5: cannot open as HDF5: "));
}

TEST_CASE("messages say which data sets and shapes a file has") {
  const ScratchDirectory directory;
  const std::string path = directory / "data.h5";
  const std::vector<float> values(60, 0.0F);
  write_hdf5(path, {{"/x\x1b", H5T_NATIVE_FLOAT, H5T_NATIVE_FLOAT, {5, 12}, values.data()},
                    {"/labels", H5T_NATIVE_FLOAT, H5T_NATIVE_FLOAT, {5, 3}, values.data()}});
  CHECK(error_of([&] { open({path}); }).value().what() ==
        path + ": has no /images; it has /labels [5,3] float32, /x\\x1b [5,12] float32");
  write_hdf5(path, {{"/images", H5T_NATIVE_FLOAT, H5T_NATIVE_FLOAT, {5, 3, 2, 2}, values.data()},
                    {"/labels", H5T_NATIVE_FLOAT, H5T_NATIVE_FLOAT, {5, 3}, values.data()}});
  CHECK(error_of([&] { open({path}); }).value().what() ==
        path + ": /labels is [5,3] float32, /images is [5,3,2,2] float32; /labels must hold 5 integers, one an image");
}

TEST_CASE("images behind an external link are those of the file that it names") {
  const ScratchDirectory directory;
  std::vector<uint8_t> pixels(5 * 3 * 2 * 2), before(999, 7);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(200 - i);
  write_hdf5(directory / "part.h5", {{"/before", H5T_NATIVE_UINT8, H5T_NATIVE_UINT8, {999}, before.data()},
                                     {"/images", H5T_NATIVE_UINT8, H5T_NATIVE_UINT8, {5, 3, 2, 2}, pixels.data()}});
  write_hdf5(directory / "data.h5", {{"/labels", H5T_NATIVE_INT64, H5T_NATIVE_INT64, {5}, kLabels.data()},
                                     {"/padding", H5T_NATIVE_UINT8, H5T_NATIVE_UINT8, {999}, before.data()}});
  const hid_t file = H5Fopen((directory / "data.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  REQUIRE(H5Lcreate_external("part.h5", "/images", file, "images", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  H5Fclose(file);
  const auto source = open({directory / "data.h5"});
  Sample sample;
  for (int64_t i = 0; i < 5; ++i) {
    source->read(i, sample);
    CHECK(std::memcmp(sample.bytes.data(), pixels.data() + i * 12, 12) == 0);
    CHECK(sample.label == kLabels[static_cast<size_t>(i)]);
  }
}

TEST_CASE("HDF5 data that overflow, or declare more than they hold, are named errors of the data") {
  const std::string path = LOCKSTEP_SOURCE_DIR "/test/hostile/hdf5_images_overflow_segv.h5";
  const auto error = error_of([&] { open({path}); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::data);
  CHECK_THAT(error->what(), ContainsSubstring(path + ": /images: its shape, [2,1,72057594037927936,256]"));

  const ScratchDirectory directory;
  const hid_t file = H5Fcreate((directory / "large.h5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  for (const auto& [name, dims] :
       {std::pair{"images", std::vector<hsize_t>{2, 3, 1 << 20, 1 << 10}}, {"labels", std::vector<hsize_t>{2}}}) {
    const hid_t space = H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr);
    H5Dclose(H5Dcreate2(file, name, H5T_NATIVE_UINT8, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Sclose(space);
  }
  H5Fclose(file);
  CHECK_THAT(error_of([&] { open({directory / "large.h5"}); }).value().what(),
             ContainsSubstring("/images is [2,3,1048576,1024] uint8, so that one image takes more than"));
}
