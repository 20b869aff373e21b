#include "lockstep/io/file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <memory>
#include <thread>

#include "test/catch.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string link_target(const std::string& path) { return std::filesystem::read_symlink(path).string(); }

// Lets no file of this process grow beyond `bytes`, as a quota does, until it goes out of scope.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = SIG_DFL;
};

}  // namespace

TEST_CASE("only a regular file is opened for positioned reads, a pipe or device is refused by name, without a wait") {
  const ScratchDirectory directory;
  write_file(directory / "file", "content");
  CHECK(file_size(open_regular_file(directory / "file", ExitCode::data), "file", ExitCode::data) == 7);
  REQUIRE(::mkfifo((directory / "pipe").c_str(), 0600) == 0);
  const auto message = [](const std::string& path) {
    const auto error = error_of([&] { open_regular_file(path, ExitCode::data); });
    REQUIRE(error);
    CHECK(error->code() == ExitCode::data);
    return std::string(error->what());
  };
  CHECK_THAT(message(directory / "pipe"), ContainsSubstring("/pipe: is a pipe, where a file is needed"));
  CHECK_THAT(message(directory.path()), ContainsSubstring("is a directory, where a file is needed"));
  CHECK_THAT(message("/dev/null"), ContainsSubstring("/dev/null: is a device"));
  CHECK_THAT(message(directory / "absent"), ContainsSubstring("absent: cannot open: No such file"));
}

TEST_CASE("a pipe is read to its end, in whatever pieces it comes, and files of /proc that have no size are too") {
  const ScratchDirectory directory;
  const std::string pipe = directory / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  std::string large(5'000'000, 'a');
  for (size_t i = 0; i < large.size(); i += 7) large[i] = static_cast<char>('a' + i % 26);
  const auto through_pipe = [&](const auto& read) {
    std::thread writer([&] {
      std::ofstream out(pipe, std::ios::binary);
      out << large.substr(0, 10) << std::flush << large.substr(10);
    });
    const auto content = read();
    writer.join();
    return content;
  };
  CHECK(through_pipe([&] { return read_text_file(pipe, ExitCode::config); }) == large);
  const std::vector<std::byte> bytes = through_pipe([&] { return read_file(pipe, ExitCode::config); });
  CHECK(std::ranges::equal(bytes, bytes_of(large)));
  CHECK(read_text_file("/proc/self/cmdline", ExitCode::config).find("io_test") != std::string::npos);
}

TEST_CASE(
    "a pipe that nobody writes to is given up, and its name is said, while one that stays empty ends with its writer") {
  const ScratchDirectory directory;
  const std::string pipe = directory / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const auto read = [&](double quiet_seconds) {
    return read_text_file(pipe, {.blame = ExitCode::config, .quiet_seconds = quiet_seconds});
  };
  const auto error = error_of([&] { read(0.05); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::config);
  CHECK(error->what() ==
        pipe + ": is a pipe, and nothing came from it for 0.05 s; start what writes to it, or name a file");

  std::thread writer([&] { std::ofstream(pipe).flush(); });
  CHECK(read(60).empty());
  writer.join();

  const int both = ::open(pipe.c_str(), O_RDWR | O_CLOEXEC);  // a writer that writes once and then stalls
  REQUIRE(::write(both, "abc", 3) == 3);
  CHECK(error_of([&] { read(0.05); }));
  ::close(both);
}

TEST_CASE("a signal while a pipe is waited for is not taken for its end") {
  const ScratchDirectory directory;
  const std::string pipe = directory / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = [](int) {};  // without SA_RESTART
  REQUIRE(::sigaction(SIGUSR1, &ignore, &before) == 0);
  std::atomic<bool> done = false;
  std::thread signals([&, reader = ::pthread_self()] {
    while (!done) {
      ::pthread_kill(reader, SIGUSR1);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  const auto error = error_of([&] { read_text_file(pipe, {.blame = ExitCode::config, .quiet_seconds = 0.2}); });
  done = true;
  signals.join();
  ::sigaction(SIGUSR1, &before, nullptr);
  REQUIRE(error);
  CHECK_THAT(error->what(), ContainsSubstring("is a pipe, and nothing came from it for 0.2 s"));
}

TEST_CASE("what must be a regular file is refused by name when it is none, or does not fit in memory") {
  const ScratchDirectory directory;
  REQUIRE(::mkfifo((directory / "pipe").c_str(), 0600) == 0);
  const auto message = [](const std::string& path) {
    const auto error = error_of([&] { read_regular_file(path, ExitCode::checkpoint); });
    REQUIRE(error);
    CHECK(error->code() == ExitCode::checkpoint);
    return std::string(error->what());
  };
  CHECK(message(directory / "pipe") == directory / "pipe" + ": is a pipe, where a file is needed");
  CHECK(message(directory.path()) == directory.path() + ": is a directory, where a file is needed");
  CHECK(message("/dev/zero") == "/dev/zero: is a device, where a file is needed");
  write_text_atomically(directory / "a", "abc", ExitCode::checkpoint);
  CHECK(read_regular_file(directory / "a", ExitCode::checkpoint).size() == 3);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which need all of the address space
  constexpr rlim_t kMemory = rlim_t{1} << 33;
  std::filesystem::resize_file(directory / "a", size_t{1} << 34);  // without a block on the disk
  rlimit before = {};
  REQUIRE(::getrlimit(RLIMIT_AS, &before) == 0);
  const rlimit less = {.rlim_cur = std::min(kMemory, before.rlim_max), .rlim_max = before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_AS, &less) == 0);
  const std::string text = message(directory / "a");
  REQUIRE(::setrlimit(RLIMIT_AS, &before) == 0);
  CHECK(text == directory / "a" + ": its 17179869184 bytes do not fit in memory");
#endif
}

TEST_CASE("a stream without an end and a file beyond the limit are errors that name it") {
  const ScratchDirectory directory;
  write_file(directory / "long", std::string(1001, 'x'));
  const auto error = [](const std::string& path) {
    return std::string(error_of([&] { read_text_file(path, ExitCode::config, 1000); }).value().what());
  };
  CHECK_THAT(error("/dev/zero"), ContainsSubstring("/dev/zero: has more than 1000 bytes"));
  CHECK_THAT(error(directory / "long"), ContainsSubstring("long: has more than 1000 bytes"));
  CHECK(read_text_file(directory / "long", ExitCode::config, 1001).size() == 1001);
}

TEST_CASE("a file written atomically reads back, replaces the old one and leaves no temporary") {
  const ScratchDirectory directory;
  const std::string path = directory / "a.bin";
  write_file_atomically(path, bytes_of("old"), {.blame = ExitCode::checkpoint});
  const std::string large(20'000'000, 'x');
  write_file_atomically(path, bytes_of(large), {.blame = ExitCode::checkpoint, .verify = true});
  CHECK(read_text_file(path, ExitCode::checkpoint, 20'000'000) == large);
  write_text_atomically(path, "", ExitCode::checkpoint);
  CHECK(read_file(path, ExitCode::checkpoint).empty());
  CHECK(list_directory(directory.path(), ExitCode::checkpoint) == std::vector<std::string>{"a.bin"});
}

TEST_CASE("who may read and write a file is the umask's to say") {
  const ScratchDirectory directory;
  const mode_t before = ::umask(0);
  const auto mode = [](const std::string& path) {
    struct stat status {};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    return status.st_mode & 0777;
  };
  for (const mode_t mask : {0002, 0027}) {
    ::umask(mask);
    const std::string base = directory / fmt::format("{:o}", mask);
    write_text_atomically(directory / "atomic" + std::to_string(mask), "", ExitCode::internal);
    CHECK(mode(directory / "atomic" + std::to_string(mask)) == (0666 & ~mask));
    CHECK(create_file(directory / "new" + std::to_string(mask), ExitCode::internal));
    CHECK(mode(directory / "new" + std::to_string(mask)) == (0666 & ~mask));
    CHECK(open_for_appending(base + "/log", ExitCode::internal));
    CHECK(mode(base + "/log") == (0666 & ~mask));
    CHECK(mode(base) == (0777 & ~mask));
  }
  ::umask(before);
}

TEST_CASE("a file is created once only, and a log notices that it was removed or replaced") {
  const ScratchDirectory directory;
  CHECK(create_file(directory / "a", ExitCode::internal));
  CHECK_FALSE(create_file(directory / "a", ExitCode::internal));
  const FileDescriptor log = open_for_appending(directory / "b/log", ExitCode::internal);
  CHECK(is_at(log, directory / "b/log"));
  std::filesystem::rename(directory / "b/log", directory / "b/old");
  CHECK_FALSE(is_at(log, directory / "b/log"));
  CHECK(is_at(log, directory / "b/old"));
  write_text_atomically(directory / "b/log", "", ExitCode::internal);
  CHECK_FALSE(is_at(log, directory / "b/log"));
}

TEST_CASE("a directory behind a link that leads nowhere is refused with the link and its target") {
  const ScratchDirectory directory;
  std::filesystem::create_symlink("/nowhere/runs", directory / "link");
  for (const std::string path : {"link", "link/a/b"}) {
    const auto error = error_of([&] { make_directories(directory / path, ExitCode::checkpoint); });
    REQUIRE(error);
    CHECK(error->what() == directory / path + ": cannot create the directory: " + directory.path() +
                               "/link is a symbolic link to /nowhere/runs, which does not exist");
  }
}

TEST_CASE("bytes on a page boundary are written and read back past the page cache, whatever their number") {
  const ScratchDirectory directory;
  const std::string path = directory / "a.bin";
  constexpr size_t kPage = 4096, kMost = 9'000'001;
  std::vector<std::byte> room(kPage + kMost);
  void* start = room.data();
  size_t left = room.size();
  auto* const page = static_cast<std::byte*>(std::align(kPage, kMost, start, left));
  for (size_t i = 0; i < kMost; ++i) page[i] = static_cast<std::byte>(i * i >> 3);
  for (const size_t size : {size_t{1}, kPage - 1, kPage, kPage + 1, 8 * kPage + 5, kMost}) {
    INFO(size);
    const std::span<const std::byte> bytes(page, size);
    write_file_atomically(path, bytes, {.blame = ExitCode::checkpoint, .verify = true});
    const std::vector<std::byte> read = read_file(path, ExitCode::checkpoint);
    CHECK(std::equal(read.begin(), read.end(), bytes.begin(), bytes.end()));
  }
}

TEST_CASE("a file that differs in one byte or in length does not read back") {
  const ScratchDirectory directory;
  const std::string path = directory / "a.bin";
  std::vector<std::byte> bytes(100'000, std::byte{7});
  write_file_atomically(path, bytes, {.blame = ExitCode::checkpoint});
  const FileDescriptor file = open_for_reading(path, ExitCode::checkpoint);
  CHECK(reads_back(file, bytes));
  for (const size_t at : {size_t{0}, size_t{50'000}, bytes.size() - 1}) {
    INFO(at);
    bytes[at] = std::byte{8};
    CHECK_FALSE(reads_back(file, bytes));
    bytes[at] = std::byte{7};
  }
  for (const size_t size : {size_t{0}, size_t{4096}, bytes.size() - 1})
    CHECK_FALSE(reads_back(file, {bytes.data(), size}));
  bytes.push_back(std::byte{7});
  CHECK_FALSE(reads_back(file, bytes));
}

TEST_CASE("an atomic write does not touch a temporary of somebody else") {
  const ScratchDirectory directory;
  write_text_atomically(directory / "other", "theirs", ExitCode::internal);
  std::filesystem::rename(directory / "other", directory / "a.tmp");
  write_text_atomically(directory / "a", "mine", ExitCode::internal);
  CHECK(read_text_file(directory / "a.tmp", ExitCode::internal) == "theirs");
  CHECK(read_text_file(directory / "a", ExitCode::internal) == "mine");
}

TEST_CASE("a failed atomic write names path, reason, needed and free bytes, and keeps the old file") {
  const ScratchDirectory directory;
  const std::string path = directory / "a.bin";
  write_text_atomically(path, "old", ExitCode::checkpoint);
  const std::string large(100'000, 'x');
  std::optional<Error> error;
  {
    const FileSizeLimit limit(50'000);
    error = error_of([&] { write_file_atomically(path, bytes_of(large), {.blame = ExitCode::checkpoint}); });
  }
  REQUIRE(error);
  CHECK(error->code() == ExitCode::checkpoint);
  CHECK_THAT(error->what(), ContainsSubstring(path + ": cannot write: File too large; 100000 bytes needed, "));
  CHECK_THAT(error->what(), ContainsSubstring(" bytes free"));
  CHECK(list_directory(directory.path(), ExitCode::checkpoint) == std::vector<std::string>{"a.bin"});
  CHECK(read_text_file(path, ExitCode::checkpoint) == "old");
}

TEST_CASE("file errors carry the caller's exit code and name the path and the reason") {
  const ScratchDirectory directory;
  const std::string missing = directory / "missing/a";
  const auto message_of = [&](auto call) {
    const auto error = error_of(call);
    REQUIRE(error);
    CHECK(error->code() == ExitCode::data);
    CHECK_THAT(error->what(), ContainsSubstring(missing));
    return std::string(error->what());
  };
  CHECK(message_of([&] { read_file(missing, ExitCode::data); }) ==
        missing + ": cannot open: No such file or directory");
  CHECK(message_of([&] { write_text_atomically(missing, "x", ExitCode::data); }) ==
        missing + ".tmp: cannot create: No such file or directory");
  CHECK(message_of([&] { list_directory(missing, ExitCode::data); }) ==
        missing + ": cannot list the directory: No such file or directory");
  CHECK(message_of([&] { fsync_directory(missing, ExitCode::data); }) ==
        missing + ": cannot open the directory: No such file or directory");
  CHECK(free_bytes(missing) == -1);
  CHECK(free_bytes(directory.path()) > 0);
  CHECK(error_of([&] { read_file(directory.path(), ExitCode::data); }).value().what() ==
        directory.path() + ": cannot read: Is a directory");
}

TEST_CASE("a positioned read beyond the end says where the file ends") {
  const ScratchDirectory directory;
  const std::string path = directory / "a";
  write_text_atomically(path, "0123456789", ExitCode::data);
  const FileDescriptor file = open_for_reading(path, ExitCode::data);
  std::array<std::byte, 4> part{};
  pread_all(file, part, {.path = path, .offset = 6, .blame = ExitCode::data});
  CHECK(std::memcmp(part.data(), "6789", 4) == 0);
  const auto error = error_of([&] { pread_all(file, part, {.path = path, .offset = 8, .blame = ExitCode::data}); });
  REQUIRE(error);
  CHECK(std::string(error->what()) == path + ": ends at byte 10, 4 bytes expected at offset 8");
}

TEST_CASE("make_directories makes all levels, keeps what is there and refuses a file in the way") {
  const ScratchDirectory directory;
  make_directories(directory / "a/b/c", ExitCode::config);
  make_directories(directory / "a/b/c", ExitCode::config);
  CHECK(std::filesystem::is_directory(directory / "a/b/c"));
  write_text_atomically(directory / "file", "x", ExitCode::config);
  const auto error = error_of([&] { make_directories(directory / "file", ExitCode::config); });
  REQUIRE(error);
  CHECK(std::string(error->what()) == (directory / "file") + ": cannot create the directory: Not a directory");
}

TEST_CASE("a symbolic link is replaced in one step and stays relative") {
  const ScratchDirectory directory;
  replace_symlink({.link = directory / "latest", .target = "one"}, ExitCode::checkpoint);
  replace_symlink({.link = directory / "latest", .target = "two"}, ExitCode::checkpoint);
  CHECK(link_target(directory / "latest") == "two");
  CHECK(list_directory(directory.path(), ExitCode::checkpoint) == std::vector<std::string>{"latest"});
  CHECK(path_exists(directory / "latest"));  // although it leads nowhere
  CHECK(remove_file(directory / "latest"));
  CHECK(remove_file(directory / "latest"));
  CHECK_FALSE(path_exists(directory / "latest"));
}

TEST_CASE("temporary names are told from others") {
  CHECK(is_temporary_name("step-00000010.h5.tmp"));
  CHECK(is_temporary_name("step-00000010.h5.tmp.12"));
  CHECK_FALSE(is_temporary_name("step-00000010.h5"));
  CHECK_FALSE(is_temporary_name("a.tmp.h5"));
  CHECK_FALSE(is_temporary_name("a.tmpx"));
}

TEST_CASE("the parent of a bare name is the current directory") {
  CHECK(parent_directory("a/b/c.h5") == "a/b");
  CHECK(parent_directory("c.h5") == ".");
  CHECK(parent_directory("/c.h5") == "/");
}
