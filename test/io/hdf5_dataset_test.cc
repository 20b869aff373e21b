#include <cstring>
#include <numeric>

#include "lockstep/io/file.h"
#include "lockstep/io/hdf5.h"
#include "test/catch.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

// Runs a Python program that has h5py and numpy at hand; false when this machine has no h5py.
bool make_with_h5py(const std::string& path, const std::string& program) {
  const std::string python = "/usr/bin/env PATH=/usr/bin:$PATH python3 ";
  if (!command_works(python + "-c 'import h5py, numpy'")) return false;
  const std::string script = path + ".py";
  write_text_atomically(script,
                        "import h5py, numpy as np\nf = h5py.File('" + path + "', 'w')\n" + program + "f.close()\n",
                        ExitCode::internal);
  const CommandResult result = run_command(python + script);
  INFO(result.output);
  REQUIRE(result.status == 0);
  return true;
}

}  // namespace

TEST_CASE("every element type reads back as written and converts") {
  auto file = Hdf5File::create_in_memory("types", {});
  const std::vector<int64_t> three{3};
  file.write<float>("/f32", three, std::vector<float>{1.5F, -2, 3});
  file.write<double>("/f64", three, std::vector<double>{1e300, 0.1, 2});
  file.write<int64_t>("/i64", three, std::vector<int64_t>{1LL << 60, -1, 0});
  file.write<int32_t>("/i32", three, std::vector<int32_t>{7, -8, 9});
  file.write<uint8_t>("/u8", three, std::vector<uint8_t>{0, 128, 255});
  const Hdf5Image image = std::move(file).finish();
  const auto read = Hdf5File::open_image(image.bytes(), "types", ExitCode::data);
  CHECK(read.read<float>("/f32") == std::vector<float>{1.5F, -2, 3});
  CHECK(read.read<double>("/f64") == std::vector<double>{1e300, 0.1, 2});
  CHECK(read.read<int64_t>("/i64") == std::vector<int64_t>{1LL << 60, -1, 0});
  CHECK(read.read<int32_t>("/i32") == std::vector<int32_t>{7, -8, 9});
  CHECK(read.read<uint8_t>("/u8") == std::vector<uint8_t>{0, 128, 255});
  CHECK(read.read<int64_t>("/u8") == std::vector<int64_t>{0, 128, 255});
  CHECK(read.read<float>("/f64")[1] == 0.1F);
  CHECK(read.dataset("/f32").info().type == Hdf5Type::f32);
  CHECK(read.dataset("/f64").info().type == Hdf5Type::f64);
  CHECK(read.dataset("/i64").info().type == Hdf5Type::i64);
  CHECK(read.dataset("/i32").info().type == Hdf5Type::i32);
  CHECK(read.dataset("/u8").info().type == Hdf5Type::u8);
  CHECK(read.dataset("/u8").info().element_bytes == 1);
  CHECK(read.dataset("/u8").info().has_checksum);
  CHECK(read.dataset("/u8").info().file_offset == -1);
}

TEST_CASE("an array of many pieces and chunks reads back whole and by rows") {
  const std::vector<int64_t> dims{701, 33, 101};  // 9 MB; rows divide neither chunks nor pieces
  std::vector<float> values(static_cast<size_t>(701 * 33 * 101));
  std::iota(values.begin(), values.end(), 0.0F);
  auto file = Hdf5File::create_in_memory("large", {});
  file.write<float>("/x", dims, values);
  const Hdf5Image image = std::move(file).finish();
  const auto dataset = Hdf5File::open_image(image.bytes(), "large", ExitCode::data).dataset("/x");
  CHECK(dataset.info().dims == dims);
  CHECK((dataset.read<float>() == values));
  std::vector<float> rows(2 * 33 * 101);
  dataset.read_rows<float>(699, rows);
  CHECK(std::equal(rows.begin(), rows.end(), values.end() - 2 * 33 * 101));
  CHECK(error_of([&] { dataset.read_rows<float>(700, rows); }).value().code() == ExitCode::internal);
}

TEST_CASE("a damaged chunk is an error, not other numbers") {
  auto file = Hdf5File::create_in_memory("damaged", {});
  const std::vector<float> values(1000, 1.0F);
  file.write<float>("/x", std::vector<int64_t>{1000}, values);
  Hdf5Image image = std::move(file).finish();
  std::byte* found = nullptr;  // a run of 1.0F: the chunk
  for (size_t i = 0; i + 4000 <= image.bytes().size() && !found; ++i) {
    if (std::memcmp(image.bytes().data() + i, values.data(), 4000) == 0) found = image.bytes().data() + i;
  }
  REQUIRE(found);
  found[2001] ^= std::byte{1};
  const auto error =
      error_of([&] { Hdf5File::open_image(image.bytes(), "damaged", ExitCode::checkpoint).read<float>("/x"); });
  REQUIRE(error);
  CHECK(std::string(error->what()) == "damaged: /x: damaged, the checksum of a chunk is wrong");
}

TEST_CASE("a file made by h5py reads: strings, scalars, foreign number types, contiguous data at its offset") {
  const ScratchDirectory directory;
  const std::string path = directory / "h5py.h5";
  if (!make_with_h5py(path,
                      "f['names'] = np.array(['fc.weight', 'é', ''], dtype=h5py.string_dtype())\n"
                      "f['fixed'] = np.array([b'ab', b'abcd'])\n"
                      "f['one'] = 'single'\n"
                      "f['scalar'] = 2.5\n"
                      "f['half'] = np.array([0.5, 1.5], dtype=np.float16)\n"
                      "f['big'] = np.array([[1, 2], [3, 4]], dtype='>i4')\n"
                      "f['images'] = np.arange(24, dtype=np.uint8).reshape(2, 3, 2, 2)\n"
                      "f.create_dataset('none', (0, 4), dtype='f4')\n"
                      "f['images'].attrs['source'] = 'h5py'\n"
                      "f['images'].attrs['count'] = np.int32(2)\n")) {
    WARN("skipped: no h5py");
    return;
  }
  const auto file = Hdf5File::open(path, ExitCode::data);
  CHECK(file.dataset("/names").read_strings() == std::vector<std::string>{"fc.weight", "é", ""});
  CHECK(file.dataset("/fixed").read_strings() == std::vector<std::string>{"ab", "abcd"});
  CHECK(file.dataset("/one").read_strings() == std::vector<std::string>{"single"});
  CHECK(file.read<float>("/scalar") == std::vector<float>{2.5F});
  CHECK(file.dataset("/scalar").info().dims.empty());
  CHECK(file.dataset("/half").info().type == Hdf5Type::other_float);
  CHECK(file.read<float>("/half") == std::vector<float>{0.5F, 1.5F});
  CHECK(file.dataset("/big").info().type == Hdf5Type::other_integer);
  CHECK(file.read<int64_t>("/big") == std::vector<int64_t>{1, 2, 3, 4});
  CHECK(file.read<float>("/none").empty());
  CHECK(file.string_attribute("/images", "source") == "h5py");
  CHECK(file.integer_attribute("/images", "count") == 2);

  const Hdf5DatasetInfo info = file.dataset("/images").info();
  CHECK(info.dims == std::vector<int64_t>{2, 3, 2, 2});
  REQUIRE(info.file_offset > 0);
  const auto bytes = read_file(path, ExitCode::data);
  for (size_t i = 0; i < 24; ++i) CHECK(static_cast<size_t>(bytes[static_cast<size_t>(info.file_offset) + i]) == i);

  CHECK(std::string(error_of([&] { file.read<float>("/names"); }).value().what()) ==
        path + ": /names: holds no numbers");
  CHECK(std::string(error_of([&] { file.dataset("/images").read_strings(); }).value().what()) ==
        path + ": /images: holds no strings");
}
