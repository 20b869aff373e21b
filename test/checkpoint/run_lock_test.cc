#include "lockstep/checkpoint/run_lock.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "lockstep/io/file.h"
#include "test/catch.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

std::string lock_text(const ScratchDirectory& directory) {
  return read_text_file(directory / "run.lock", ExitCode::internal);
}

// The value of a field of this process's own lock.
std::string field_of(const std::string& text, const std::string& key) {
  const size_t at = text.find(key + " ") + key.size() + 1;
  return text.substr(at, text.find('\n', at) - at);
}

void write_lock(const ScratchDirectory& directory, const std::string& text) {
  write_text_atomically(directory / "run.lock", text, ExitCode::internal);
}

constexpr RunLockOptions kFast{.heartbeat_seconds = 0.05, .stale_seconds = 0.5};

}  // namespace

TEST_CASE("a second run on a directory is refused and told who owns it, and afterwards the directory is free") {
  const ScratchDirectory directory;
  {
    const RunLock first(directory / "run");
    const auto error = error_of([&] { RunLock second(directory / "run"); });
    REQUIRE(error);
    CHECK(error->code() == ExitCode::config);
    CHECK_THAT(error->what(), ContainsSubstring(fmt::format("belongs to a running job, process {} on ", ::getpid())));
    CHECK(first.held());
  }
  CHECK(list_directory(directory / "run", ExitCode::internal).empty());
  CHECK_NOTHROW(RunLock(directory / "run"));
}

TEST_CASE("a directory that is deleted or moved during the run is made again, with its lock") {
  const ScratchDirectory directory;
  {
    const RunLock lock(directory / "run", kFast);
    std::filesystem::rename(directory / "run", directory / "moved");
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!path_exists(directory / "run/run.lock") && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    REQUIRE(path_exists(directory / "run/run.lock"));
    CHECK(lock.held());
  }
  CHECK_FALSE(path_exists(directory / "run/run.lock"));
}

TEST_CASE("the lock of a dead process of this machine is taken over at once") {
  const ScratchDirectory directory;
  std::string space;
  std::string started;
  {
    const RunLock own(directory.path());
    space = field_of(lock_text(directory), "space");
    started = field_of(lock_text(directory), "started");
  }
  // No such process; and a process of that number which started at another time.
  for (const std::string& owner :
       {std::string("pid 999999999\nstarted 1"), fmt::format("pid {}\nstarted {}0", ::getpid(), started)}) {
    write_lock(directory, fmt::format("host old\n{}\nspace {}\nheartbeat 000000000007\n", owner, space));
    const RunLock lock(directory.path());  // a wait of a minute would fail the test's time limit
    CHECK(lock.held());
    CHECK(field_of(lock_text(directory), "pid") == std::to_string(::getpid()));
  }
}

TEST_CASE("a dead owner's lock that cannot be moved is refused, and not tried without end") {
  const ScratchDirectory directory;
  std::string space, host;
  {
    const RunLock own(directory.path());
    space = field_of(lock_text(directory), "space");
    host = field_of(lock_text(directory), "host");
  }
  write_lock(directory, fmt::format("host old\npid 999999999\nstarted 1\nspace {}\nheartbeat 000000000007\n", space));
  // A directory is in the way of the rename.
  std::filesystem::create_directory(fmt::format("{}/run.lock.{}.{}", directory.path(), host, ::getpid()));
  const auto error = error_of([&] { RunLock lock(directory.path()); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::checkpoint);
  CHECK_THAT(error->what(), ContainsSubstring("run.lock: its owner is not running any more, but the lock cannot be "
                                              "taken over: "));
}

TEST_CASE("the lock of another machine is taken over when its heartbeat stops") {
  const ScratchDirectory directory;
  write_lock(directory, "host node7\npid 12\nstarted 1\nspace elsewhere\nheartbeat 000000000007\n");
  const RunLock lock(directory.path(), kFast);
  CHECK(lock.held());
}

TEST_CASE("a stump of a lock is taken over when nobody completes it") {
  const ScratchDirectory directory;
  std::string whole;
  {
    const RunLock own(directory.path());
    whole = lock_text(directory);
  }
  for (const std::string& stump : {std::string(), whole.substr(0, 3), whole.substr(0, whole.find("pid ") + 5),
                                   std::string(whole.size(), '\0'), whole.substr(0, 20) + std::string(40, '\0')}) {
    write_lock(directory, stump);
    CHECK_NOTHROW(RunLock(directory.path(), kFast));
  }
}

TEST_CASE("a lock that no run has written is refused at once, and left alone") {
  const ScratchDirectory directory;
  for (const std::string& text :
       {std::string("somebody's"), std::string("host node7\nnotes: mine\n"), std::string("hosts\n"),
        std::string("host a\npid 1\nstarted 1\nspace a\nheartbeat 1\nmore\n"), std::string(1 << 20, 'x')}) {
    write_lock(directory, text);
    const auto error =
        error_of([&] { RunLock lock(directory.path()); });  // a minute's wait would be too long for a test
    REQUIRE(error);
    CHECK(error->code() == ExitCode::config);
    CHECK_THAT(error->what(), ContainsSubstring(directory / "run.lock: was not written by a run") &&
                                  ContainsSubstring("delete the file if none does"));
    CHECK(lock_text(directory) == text);
  }
}

TEST_CASE("a pipe or a directory in the place of the lock is named instead of waited for") {
  const ScratchDirectory directory;
  REQUIRE(::mkfifo((directory / "run.lock").c_str(), 0600) == 0);
  const auto of_pipe = error_of([&] { RunLock lock(directory.path()); });
  REQUIRE(of_pipe);
  CHECK(of_pipe->code() == ExitCode::checkpoint);
  CHECK_THAT(of_pipe->what(), ContainsSubstring("run.lock: is a pipe, where a file is needed"));
  std::filesystem::remove(directory / "run.lock");
  std::filesystem::create_directory(directory / "run.lock");
  const auto of_directory = error_of([&] { RunLock lock(directory.path()); });
  REQUIRE(of_directory);
  CHECK_THAT(of_directory->what(),
             ContainsSubstring("run.lock: is a directory") || ContainsSubstring("run.lock: is a directory"));
}

TEST_CASE("the lock of another machine is respected while its heart beats") {
  const ScratchDirectory directory;
  std::atomic<bool> stop = false;
  const auto beat = [&](int n) {
    write_lock(directory, fmt::format("host node7\npid 12\nstarted 1\nspace elsewhere\nheartbeat {:012}\n", n));
  };
  beat(0);
  std::thread other([&] {
    for (int n = 1; !stop; ++n) {
      beat(n);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  const auto error =
      error_of([&] { RunLock lock(directory.path(), {.heartbeat_seconds = 0.05, .stale_seconds = 30}); });
  stop = true;
  other.join();
  REQUIRE(error);
  CHECK(error->code() == ExitCode::config);
  CHECK_THAT(error->what(), ContainsSubstring("process 12 on node7"));
}

TEST_CASE("what a foreign lock says can neither act on the terminal nor forge a line nor name a path") {
  const ScratchDirectory directory;
  std::atomic<bool> stop = false;
  const std::string host = "node7\x1b[2K\rstep 5: all is well" + std::string(500, 'x');
  std::thread other([&] {
    for (int n = 0; !stop; ++n) {
      write_lock(directory, fmt::format("host {}\npid 12\nstarted 1\nspace elsewhere\nheartbeat {:012}\n", host, n));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  while (!path_exists(directory / "run.lock")) std::this_thread::yield();
  const auto error =
      error_of([&] { RunLock lock(directory.path(), {.heartbeat_seconds = 0.05, .stale_seconds = 30}); });
  stop = true;
  other.join();
  REQUIRE(error);
  CHECK_THAT(error->what(), ContainsSubstring("process 12 on node7\\x1b[2K\\x0dstep 5: all is well"));
  CHECK_THAT(error->what(), ContainsSubstring("bytes); stop it"));

  write_lock(directory, "host node7\npid ../../tmp/x\nstarted 1\nspace elsewhere\nheartbeat 000000000007\n");
  CHECK_NOTHROW(RunLock(directory.path(), kFast));
}

TEST_CASE("the heart beats in place, and a deleted lock is made again") {
  const ScratchDirectory directory;
  const RunLock lock(directory.path(), kFast);
  const std::string first = lock_text(directory);
  while (lock_text(directory) == first) std::this_thread::yield();
  CHECK(lock_text(directory).size() == first.size());
  remove_file(directory / "run.lock");
  while (!path_exists(directory / "run.lock")) std::this_thread::yield();
  CHECK(lock.held());
}

TEST_CASE("a run whose directory was taken over notices and leaves the new owner's lock alone") {
  const ScratchDirectory directory;
  const std::string theirs = "host node7\npid 12\nstarted 1\nspace elsewhere\nheartbeat 000000000000\n";
  {
    const RunLock lock(directory.path(), kFast);
    write_lock(directory, theirs);
    while (lock.held()) std::this_thread::yield();
  }
  CHECK(lock_text(directory) == theirs);
}

TEST_CASE("a directory that cannot be made is a checkpoint error") {
  const ScratchDirectory directory;
  write_text_atomically(directory / "file", "", ExitCode::internal);
  const auto error = error_of([&] { RunLock lock(directory / "file"); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::checkpoint);
}
