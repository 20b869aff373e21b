// Chunks with filters: decoded as the library does, and refused where the library would read beyond them.
#include <fcntl.h>
#include <hdf5.h>
#include <zlib.h>

#include <array>
#include <cstring>
#include <numeric>

#include "io/hdf5_chunk_cache.h"
#include "lockstep/io/file.h"
#include "lockstep/io/hdf5.h"
#include "test/catch.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

enum class Filters : uint8_t { deflate, shuffle_deflate, all, checksum_first, checksum };

struct Spec {
  hid_t type = -1;
  std::vector<hsize_t> dims, chunk;
  Filters filters = Filters::all;
  float fill = 0;
  unsigned options = 0;  // of H5Pset_chunk_opts
};

// Creates /x and hands its handle to `write`.
template <class Write>
void make_chunked(const std::string& path, const Spec& spec, const Write& write) {
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const int rank = static_cast<int>(spec.dims.size());
  const std::vector<hsize_t> most(spec.dims.size(), H5S_UNLIMITED);  // chunks may be larger than the array
  const hid_t space = H5Screate_simple(rank, spec.dims.data(), most.data());
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(creation, rank, spec.chunk.data());
  REQUIRE(H5Pset_chunk_opts(creation, spec.options) >= 0);
  if (spec.fill != 0) H5Pset_fill_value(creation, H5T_NATIVE_FLOAT, &spec.fill);
  if (spec.filters == Filters::checksum_first || spec.filters == Filters::checksum) H5Pset_fletcher32(creation);
  if (spec.filters == Filters::shuffle_deflate || spec.filters == Filters::all) H5Pset_shuffle(creation);
  if (spec.filters != Filters::checksum) H5Pset_deflate(creation, 4);
  if (spec.filters == Filters::all) H5Pset_fletcher32(creation);
  const hid_t dataset = H5Dcreate2(file, "x", spec.type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  REQUIRE(dataset >= 0);
  write(dataset);
  H5Dclose(dataset);
  H5Pclose(creation);
  H5Sclose(space);
  H5Fclose(file);
}

std::vector<std::byte> deflated(std::span<const std::byte> bytes) {
  uLongf length = ::compressBound(bytes.size());
  std::vector<std::byte> packed(length);
  REQUIRE(::compress(reinterpret_cast<Bytef*>(packed.data()), &length, reinterpret_cast<const Bytef*>(bytes.data()),
                     bytes.size()) == Z_OK);
  packed.resize(length);
  return packed;
}

// What reading /x, [8] float32 in one chunk of deflate, says when `stored` is its chunk.
std::string refusal_of_chunk(std::span<const std::byte> stored, uint32_t skipped = 0) {
  const ScratchDirectory directory;
  const std::string path = directory / "a.h5";
  make_chunked(path, {.type = H5T_NATIVE_FLOAT, .dims = {8}, .chunk = {8}, .filters = Filters::deflate}, [&](hid_t x) {
    const hsize_t at = 0;
    REQUIRE(H5Dwrite_chunk(x, H5P_DEFAULT, skipped, &at, stored.size(), stored.data()) >= 0);
  });
  const auto error = error_of([&] { Hdf5File::open(path, ExitCode::data).read<float>("/x"); });
  if (!error) return "none";
  CHECK(error->code() == ExitCode::data);
  return std::string(error->what()).substr(path.size());
}

}  // namespace

TEST_CASE("filtered chunks of every shape read as the library reads them, whole and by rows") {
  const ScratchDirectory directory;
  const std::string path = directory / "a.h5";
  const std::vector<std::pair<std::vector<hsize_t>, std::vector<hsize_t>>> shapes = {{{23}, {5}},
                                                                                     {{4}, {9}},
                                                                                     {{7, 11}, {3, 4}},
                                                                                     {{7, 11}, {3, 11}},
                                                                                     {{6, 5, 4}, {4, 2, 4}},
                                                                                     {{3, 4, 5, 6}, {2, 3, 2, 5}},
                                                                                     {{3, 4, 5, 6}, {1, 4, 5, 6}},
                                                                                     {{3, 4, 5, 6}, {2, 9, 5, 6}}};
  for (const auto& [dims, chunk] : shapes) {
    for (const Filters filters :
         {Filters::deflate, Filters::shuffle_deflate, Filters::all, Filters::checksum_first, Filters::checksum}) {
      for (const hid_t type : {H5T_IEEE_F32LE, H5T_IEEE_F32BE, H5T_IEEE_F64LE, H5T_STD_I16BE, H5T_STD_U8LE}) {
        const size_t count = std::accumulate(dims.begin(), dims.end(), size_t{1}, std::multiplies<>());
        std::vector<float> values(count);
        for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i * 7 % 251);
        make_chunked(path, {.type = type, .dims = dims, .chunk = chunk, .filters = filters}, [&](hid_t x) {
          REQUIRE(H5Dwrite(x, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
        });
        const auto dataset = Hdf5File::open(path, ExitCode::data).dataset("/x");
        REQUIRE((dataset.read<float>() == values));
        REQUIRE((dataset.read<int64_t>() == std::vector<int64_t>(values.begin(), values.end())));
        const size_t row = count / dims[0];
        for (size_t first = 0; first < dims[0]; ++first) {
          for (size_t rows = 1; first + rows <= dims[0]; ++rows) {
            std::vector<float> part(rows * row);
            dataset.read_rows<float>(static_cast<int64_t>(first), part);
            REQUIRE(std::equal(part.begin(), part.end(), values.begin() + static_cast<std::ptrdiff_t>(first * row)));
          }
        }
      }
    }
  }
}

TEST_CASE("chunks that were never written hold the fill value") {
  const ScratchDirectory directory;
  const std::string path = directory / "a.h5";
  for (const float fill : {0.0F, 2.5F}) {
    make_chunked(path, {.type = H5T_NATIVE_FLOAT, .dims = {8}, .chunk = {3}, .fill = fill}, [](hid_t x) {
      const hid_t space = H5Dget_space(x);
      const hsize_t start = 3, count = 3;
      const std::vector<float> middle{1, 2, 3};
      H5Sselect_hyperslab(space, H5S_SELECT_SET, &start, nullptr, &count, nullptr);
      const hid_t memory = H5Screate_simple(1, &count, nullptr);
      REQUIRE(H5Dwrite(x, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, middle.data()) >= 0);
      H5Sclose(memory);
      H5Sclose(space);
    });
    CHECK(Hdf5File::open(path, ExitCode::data).read<float>("/x") ==
          std::vector<float>{fill, fill, fill, 1, 2, 3, fill, fill});
  }
}

TEST_CASE("chunks at the edge of an array that are stored without filters are taken as they are") {
  const ScratchDirectory directory;
  const std::string path = directory / "a.h5";
  std::vector<float> values(7 * 11);
  std::iota(values.begin(), values.end(), 1.0F);
  for (const Filters filters : {Filters::deflate, Filters::all, Filters::checksum}) {
    const Spec spec{.type = H5T_NATIVE_FLOAT,
                    .dims = {7, 11},
                    .chunk = {3, 4},
                    .filters = filters,
                    .options = H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS};
    make_chunked(path, spec, [&](hid_t x) {
      REQUIRE(H5Dwrite(x, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
    });
    CHECK(Hdf5File::open(path, ExitCode::data).read<float>("/x") == values);
  }
}

TEST_CASE("a chunk that left a filter out is taken as it is") {
  const std::vector<float> values{1, 2, 3, 4, 5, 6, 7, 8};
  CHECK(refusal_of_chunk(std::as_bytes(std::span(values)), 1) == "none");
  CHECK(refusal_of_chunk(deflated(std::as_bytes(std::span(values)))) == "none");
}

TEST_CASE("a chunk that is not of the size it must have is damage, and nothing beyond it is read") {
  const std::vector<float> values(9, 1.0F);
  const auto bytes = std::as_bytes(std::span(values));
  CHECK(refusal_of_chunk(deflated(bytes.first(20))) == ": /x: damaged, a chunk of 32 bytes holds 20");
  CHECK(refusal_of_chunk(deflated(bytes.first(0))) == ": /x: damaged, a chunk of 32 bytes holds 0");
  CHECK(refusal_of_chunk(deflated(bytes)) == ": /x: damaged, a chunk cannot be decompressed");
  CHECK(refusal_of_chunk(bytes.first(32)) == ": /x: damaged, a chunk cannot be decompressed");
  CHECK(refusal_of_chunk(bytes.first(20), 1) == ": /x: damaged, a chunk of 32 bytes holds 20");
  CHECK(refusal_of_chunk(bytes, 1) == ": /x: damaged, a chunk of 32 bytes holds 36");
}

TEST_CASE("chunks without filters are read by the library") {
  const ScratchDirectory directory;
  const std::string path = directory / "a.h5";
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const std::array<hsize_t, 2> dims{7, 5}, chunk{3, 2};
  const hid_t space = H5Screate_simple(2, dims.data(), nullptr);
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(creation, 2, chunk.data());
  const hid_t dataset = H5Dcreate2(file, "x", H5T_NATIVE_FLOAT, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  std::vector<float> values(35);
  std::iota(values.begin(), values.end(), 1.0F);
  REQUIRE(H5Dwrite(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
  H5Dclose(dataset);
  H5Pclose(creation);
  H5Sclose(space);
  H5Fclose(file);
  CHECK(Hdf5File::open(path, ExitCode::data).read<float>("/x") == values);
}

TEST_CASE("strings of one length in filtered chunks read as they were written") {
  std::vector<std::string> names;
  for (int i = 0; i < 3000; ++i) names.push_back(fmt::format("class {} \xc3\xbc", i * 37));
  auto file = Hdf5File::create_in_memory("names", {});
  file.write_strings("/classes", names);
  const Hdf5Image image = std::move(file).finish();
  CHECK((Hdf5File::open_image(image.bytes(), "names", ExitCode::data).dataset("/classes").read_strings() == names));
}

namespace {

// [8] float32 in one chunk by a filter that no library has; `skipped`: the chunk does without it.
std::string write_unknown_filter(const ScratchDirectory& directory, const char* name, uint32_t skipped) {
  constexpr H5Z_filter_t kFilter = 32000;
  H5Z_class2_t filter{H5Z_CLASS_T_VERS, kFilter, 1, 1, name, nullptr, nullptr, nullptr};
  filter.filter = [](unsigned, size_t, const unsigned*, size_t, size_t*, void**) -> size_t { return 0; };
  if (name != nullptr) REQUIRE(H5Zregister(&filter) >= 0);
  const std::string path = directory / "a.h5";
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hsize_t count = 8, at = 0;
  const hid_t space = H5Screate_simple(1, &count, nullptr);
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(creation, 1, &count);
  REQUIRE(H5Pset_filter(creation, kFilter, H5Z_FLAG_OPTIONAL, 0, nullptr) >= 0);
  const hid_t dataset = H5Dcreate2(file, "x", H5T_NATIVE_FLOAT, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  REQUIRE(dataset >= 0);
  const std::vector<float> values(8, 1.5F);
  REQUIRE(H5Dwrite_chunk(dataset, H5P_DEFAULT, skipped, &at, count * sizeof(float), values.data()) >= 0);
  H5Dclose(dataset);
  H5Pclose(creation);
  H5Sclose(space);
  H5Fclose(file);
  if (name != nullptr) H5Zunregister(kFilter);
  return path;
}

}  // namespace

TEST_CASE("a filter that the library does not have is named, with the way out") {
  const ScratchDirectory directory;
  const auto error = [](const std::string& path) {
    const auto thrown = error_of([&] { Hdf5File::open(path, ExitCode::data).read<float>("/x"); });
    REQUIRE(thrown);
    CHECK(thrown->code() == ExitCode::data);
    return std::string(thrown->what());
  };
  const std::string path = write_unknown_filter(directory, "lzf", 0);
  CHECK(error(path) == path +
                           ": /x: is compressed by lzf (filter 32000), which this HDF5 library does not have; write it "
                           "again with one that has it, by h5repack -f GZIP=4 FROM TO, or in h5py with "
                           "compression=\"gzip\"");
  CHECK_THAT(error(write_unknown_filter(directory, nullptr, 0)),
             ContainsSubstring("is compressed by filter 32000, which"));
  CHECK(Hdf5File::open(write_unknown_filter(directory, "lzf", 1), ExitCode::data).read<float>("/x") ==
        std::vector<float>(8, 1.5F));
}

TEST_CASE("a row of chunks that is read in parts is decoded once, however large, and forgotten with its data set") {
  using hdf5::ChunkCache;
  const ScratchDirectory directory;
  const std::string path = directory / "a.h5";
  constexpr hsize_t kRows = 3000, kColumns = 1024;  // 12 MB in one chunk
  std::vector<float> values(kRows * kColumns);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i * 2654435761 % 65537);  // hard to compress
  make_chunked(path, {.type = H5T_NATIVE_FLOAT, .dims = {kRows, kColumns}, .chunk = {kRows, kColumns}}, [&](hid_t x) {
    REQUIRE(H5Dwrite(x, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
  });
  const size_t before = ChunkCache::instance().bytes();
  {
    const Hdf5Dataset x = Hdf5File::open(path, ExitCode::data).dataset("/x");
    CHECK(x.info().rows_together == kRows);
    std::vector<float> row(kColumns);
    x.read_rows(7, std::span(row));
    CHECK(ChunkCache::instance().bytes() == before + values.size() * sizeof(float));
    // From here on the file's own chunk cannot be decoded any more.
    std::string bytes = read_file(path);
    std::fill(bytes.begin() + static_cast<ptrdiff_t>(bytes.size() / 2), bytes.end(), 'x');
    const FileDescriptor file(::open(path.c_str(), O_WRONLY));
    write_all(file, std::as_bytes(std::span(bytes)), path, ExitCode::data);
    for (const int64_t at : {int64_t{0}, int64_t{2999}}) {
      x.read_rows(at, std::span(row));
      CHECK(std::equal(row.begin(), row.end(), values.begin() + at * static_cast<int64_t>(kColumns)));
    }
    CHECK_THROWS_AS(x.read<float>(), Error);
  }
  CHECK(ChunkCache::instance().bytes() == before);
}

TEST_CASE("what was decoded is kept up to a limit for all data sets together, and one entry always") {
  using hdf5::ChunkCache;
  ChunkCache cache;
  const int a = 0, b = 0;
  const auto bytes = [](size_t count) { return std::make_shared<const std::vector<std::byte>>(count); };
  constexpr size_t kThird = ChunkCache::kMostBytes / 3;
  cache.add({&a, 1, 0}, bytes(kThird));
  cache.add({&a, 1, 1}, bytes(kThird));
  cache.add({&b, 1, 0}, bytes(kThird));
  CHECK(cache.find({&a, 1, 0}));  // used last
  CHECK_FALSE(cache.find({&a, 2, 0}));
  cache.add({&b, 1, 1}, bytes(kThird));
  CHECK_FALSE(cache.find({&a, 1, 1}));
  CHECK(cache.find({&a, 1, 0}));
  CHECK(cache.bytes() == 3 * kThird);
  cache.forget(&b);
  CHECK(cache.bytes() == kThird);
  cache.add({&b, 1, 2}, bytes(ChunkCache::kMostBytes + 1));
  CHECK(cache.bytes() == ChunkCache::kMostBytes + 1);
  CHECK(cache.find({&b, 1, 2}));
  CHECK_FALSE(cache.find({&a, 1, 0}));
}

TEST_CASE("tiny entries are bounded by their number, and those of one reader are forgotten alone") {
  using hdf5::ChunkCache;
  ChunkCache cache;
  const std::array<int, 3> readers{};
  const auto byte = std::make_shared<const std::vector<std::byte>>(1);
  constexpr auto kMost = static_cast<int64_t>(ChunkCache::kMostEntries);
  cache.add({&readers[0], 1, 0}, byte);
  cache.add({&readers[2], 1, 0}, byte);
  for (int64_t row = 0; row < kMost - 1; ++row) cache.add({&readers[1], 1, row}, byte);
  CHECK(cache.bytes() == ChunkCache::kMostEntries);
  CHECK_FALSE(cache.find({&readers[0], 1, 0}));
  CHECK(cache.find({&readers[2], 1, 0}));
  CHECK(cache.find({&readers[1], 1, 0}));
  cache.add({&readers[1], 1, 0}, std::make_shared<const std::vector<std::byte>>(5));  // it is there already
  CHECK(cache.bytes() == ChunkCache::kMostEntries);
  cache.forget(&readers[1]);
  CHECK(cache.bytes() == 1);
  CHECK(cache.find({&readers[2], 1, 0}));
  CHECK_FALSE(cache.find({&readers[1], 1, kMost - 2}));
}
