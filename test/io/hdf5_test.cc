#include "lockstep/io/hdf5.h"

#include <thread>

#include "lockstep/io/file.h"
#include "test/catch.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

Hdf5Image small_image(size_t user_block_bytes = 0) {
  auto file = Hdf5File::create_in_memory("small", {.user_block_bytes = user_block_bytes});
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  file.write<float>("/model/fc.weight", std::vector<int64_t>{2, 3}, values);
  file.write<float>("/other/inner/x", std::vector<int64_t>{1}, std::vector<float>{7});
  return std::move(file).finish();
}

}  // namespace

TEST_CASE("an HDF5 file built in memory reads back from memory and from disk") {
  const Hdf5Image image = small_image();
  const ScratchDirectory directory;
  write_file_atomically(directory / "a.h5", image.bytes(), {});
  for (const bool from_disk : {false, true}) {
    const auto file = from_disk ? Hdf5File::open(directory / "a.h5", ExitCode::data)
                                : Hdf5File::open_image(image.bytes(), "image", ExitCode::data);
    CHECK(file.read<float>("/model/fc.weight") == std::vector<float>{1, 2, 3, 4, 5, 6});
    CHECK(file.exists("/other/inner"));
    CHECK_FALSE(file.exists("/other/outer/none"));
    const auto root = file.list("/");
    REQUIRE(root.size() == 2);
    CHECK(root[1].name == "other");
    CHECK(root[1].kind == Hdf5File::Kind::group);
    REQUIRE(file.list("/model").size() == 1);
    CHECK(file.list("/model")[0].kind == Hdf5File::Kind::dataset);
  }
}

TEST_CASE("strings of any length keep their bytes") {
  const std::vector<std::string> names{"", "cat", "\xc3\xbc \xe7\x8c\xab", std::string(300, 'n')};
  auto file = Hdf5File::create_in_memory("names", {});
  file.write_strings("/classes", names);
  file.write_strings("/empty", std::vector<std::string>{"", ""});
  const Hdf5Image image = std::move(file).finish();
  const auto read = Hdf5File::open_image(image.bytes(), "names", ExitCode::data);
  CHECK(read.dataset("/classes").read_strings() == names);
  CHECK(read.dataset("/empty").read_strings() == std::vector<std::string>{"", ""});
  CHECK(read.dataset("/classes").info().has_checksum);
  CHECK_THROWS_AS(read.read<float>("/classes"), Error);
}

TEST_CASE("an image is no longer than its content and starts with the user block") {
  const Hdf5Image plain = small_image();
  const Hdf5Image blocked = small_image(512);
  CHECK(blocked.bytes().size() == plain.bytes().size() + 512);
  CHECK(plain.bytes().size() < 10'000);
  for (size_t i = 0; i < 512; ++i) REQUIRE(blocked.bytes()[i] == std::byte{0});
  const auto file = Hdf5File::open_image(blocked.bytes(), "blocked", ExitCode::data);
  CHECK(file.read<float>("/model/fc.weight").back() == 6);
}

TEST_CASE("two images of one name are two files") {
  const Hdf5Image first = small_image();
  auto other = Hdf5File::create_in_memory("small", {});
  other.write<float>("/x", std::vector<int64_t>{1}, std::vector<float>{9});
  const Hdf5Image second = std::move(other).finish();
  const auto a = Hdf5File::open_image(first.bytes(), "same", ExitCode::data);
  const auto b = Hdf5File::open_image(second.bytes(), "same", ExitCode::data);
  CHECK(a.exists("/model"));
  CHECK(b.read<float>("/x") == std::vector<float>{9});
}

TEST_CASE("what is no HDF5 file, and what a file lacks, is a named error") {
  const ScratchDirectory directory;
  write_text_atomically(directory / "a.h5", "no HDF5", ExitCode::data);
  const auto foreign = error_of([&] { Hdf5File::open(directory / "a.h5", ExitCode::data); });
  REQUIRE(foreign);
  CHECK(foreign->code() == ExitCode::data);
  CHECK_THAT(foreign->what(), ContainsSubstring((directory / "a.h5") + ": cannot open as HDF5: "));
  CHECK_THAT(foreign->what(), ContainsSubstring("file signature not found"));
  CHECK(error_of([&] { Hdf5File::open_image({}, "empty", ExitCode::data); }));

  const Hdf5Image image = small_image();
  const auto file = Hdf5File::open_image(image.bytes(), "image", ExitCode::checkpoint);
  const auto missing = error_of([&] { file.dataset("/model/none"); });
  REQUIRE(missing);
  CHECK(missing->code() == ExitCode::checkpoint);
  CHECK_THAT(missing->what(), ContainsSubstring("image: cannot open data set /model/none: "));
}

TEST_CASE("a file cannot be finished while a data set of it is open") {
  auto file = Hdf5File::create_in_memory("open", {});
  file.write<float>("/x", std::vector<int64_t>{1}, std::vector<float>{9});
  const auto dataset = file.dataset("/x");
  const auto error = error_of([&] { std::move(file).finish(); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::internal);
}

TEST_CASE("a file opens on disk although another process holds a lock on it") {
  if (!command_works("flock --version")) return;
  const ScratchDirectory directory;
  write_file_atomically(directory / "a.h5", small_image().bytes(), {});
  const std::string held = directory / "held";
  std::thread holder(
      [&] { run_command("flock -x " + (directory / "a.h5") + " sh -c 'touch " + held + "; sleep 0.5'"); });
  while (!path_exists(held)) std::this_thread::yield();
  CHECK_NOTHROW(Hdf5File::open(directory / "a.h5", ExitCode::data));
  holder.join();
}

TEST_CASE("threads may build and read files at once") {
  std::vector<std::thread> threads;
  std::vector<int> failures(4, 0);
  for (size_t t = 0; t < failures.size(); ++t) {
    threads.emplace_back([t, &failures] {
      for (int repeat = 0; repeat < 20; ++repeat) {
        const Hdf5Image image = small_image(512);
        const auto file = Hdf5File::open_image(image.bytes(), "shared", ExitCode::data);
        if (file.read<float>("/model/fc.weight")[5] != 6) ++failures[t];
        if (!error_of([&] { file.dataset("/none"); })) ++failures[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == std::vector<int>(4, 0));
}
