#include "data/hdf5_source.h"

#include <hdf5.h>

#include <cstring>
#include <thread>

#include "lockstep/data/formats.h"
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
  const ScratchFolder folder;
  std::vector<uint8_t> pixels(5 * 3 * 2 * 4);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i);
  for (const bool chunked : {false, true}) {
    write_hdf5(folder / "data.h5",
               {{"/images", H5T_NATIVE_UINT8, H5T_NATIVE_UINT8, {5, 3, 2, 4}, pixels.data(), chunked},
                {"/labels", H5T_STD_I32LE, H5T_NATIVE_INT64, {5}, kLabels.data()}});
    const auto source = open({folder / "data.h5"});
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
  const ScratchFolder folder;
  const std::vector<float> pixels = {0.0F, 0.25F, 0.5F, 1.0F};
  const std::vector<int64_t> labels = {0, 1};
  for (const hid_t type : {H5T_IEEE_F32LE, H5T_IEEE_F32BE, H5T_IEEE_F64LE}) {
    write_hdf5(folder / "data.h5", {{"/images", type, H5T_NATIVE_FLOAT, {2, 1, 1, 2}, pixels.data()},
                                    {"/labels", H5T_NATIVE_UINT8, H5T_NATIVE_INT64, {2}, labels.data()}});
    const auto source = open({folder / "data.h5"});
    Sample sample;
    source->read(1, sample);
    REQUIRE(sample.kind == Sample::Kind::f32);
    REQUIRE(sample.bytes.size() == 8);
    CHECK(std::memcmp(sample.bytes.data(), pixels.data() + 2, 8) == 0);
    CHECK(sample.label == 1);
  }
}

TEST_CASE("several files are numbered through, and messages name file and image") {
  const ScratchFolder folder;
  const std::vector<uint8_t> pixels(5, 0);
  for (const char* name : {"a.h5", "b.h5"}) {
    write_hdf5(folder / name, {{"/images", H5T_NATIVE_UINT8, H5T_NATIVE_UINT8, {5, 1, 1, 1}, pixels.data()},
                               {"/labels", H5T_NATIVE_INT64, H5T_NATIVE_INT64, {5}, kLabels.data()}});
  }
  const auto source = open(list_inputs("hdf5", {folder / "*.h5"}));
  CHECK(source->size() == 10);
  CHECK(source->where(7) == "b.h5 image 2");
  Sample sample;
  source->read(7, sample);
  CHECK(sample.label == 4);
}

TEST_CASE("files of another shape are errors that say what is needed") {
  const ScratchFolder folder;
  const std::string path = folder / "data.h5";
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
