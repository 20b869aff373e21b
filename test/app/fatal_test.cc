// How a process ends that fails: each case ends one made for it.
#include "app/fatal.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <latch>
#include <stdexcept>
#include <thread>

#include "lockstep/base/log.h"
#include "test/catch.h"
#include "test/redirected.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

struct Ending {
  int code = -1;  // exit code; -signal when killed
  std::string output;
};

ProgressBoard& board() {
  static ProgressBoard board;
  return board;
}

// Runs `work`, which does not return, in a process of its own.
template <class Work>
Ending ending_of(const Work& work) {
  const ScratchDirectory directory;
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    const Redirected errors(STDERR_FILENO, directory / "errors");
    static FatalReport context(board());
    set_fatal_report(&context);
    work();
    ::_exit(99);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), read_file(directory / "errors")};
}

int errors_in(const std::string& output) {
  int count = 0;
  for (size_t at = 0; (at = output.find("error: ", at)) != std::string::npos; ++at) ++count;
  return count;
}

}  // namespace

TEST_CASE("of threads that fail together one speaks, and its code is the process's") {
  constexpr ExitCode kCodes[] = {ExitCode::config, ExitCode::data, ExitCode::numerics, ExitCode::checkpoint};
  for (int round = 0; round < 10; ++round) {
    const Ending ending = ending_of([&] {
      std::latch start(std::ssize(kCodes));
      std::vector<std::thread> threads;
      for (const ExitCode code : kCodes) {
        threads.emplace_back([&start, code] {
          start.arrive_and_wait();
          // The work after the words leaves the others the time to come.
          fatal(Error(code, fmt::format("failed with {}", static_cast<int>(code))),
                [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); });
        });
      }
      for (std::thread& thread : threads) thread.join();
    });
    CHECK(errors_in(ending.output) == 1);
    CHECK(ending.output == fmt::format("error: failed with {} [start of MPI, step 0]\n", ending.code));
  }
}

TEST_CASE("an error in the fatal report ends the process with the code of the first") {
  const Ending thrown =
      ending_of([] { fatal(Error(ExitCode::data, "a record is torn"), [] { throw std::runtime_error("and more"); }); });
  CHECK(thrown.code == static_cast<int>(ExitCode::data));
  CHECK(errors_in(thrown.output) == 1);
  const Ending again = ending_of([] {
    fatal(Error(ExitCode::data, "a record is torn"),
          [] { fatal(Error(ExitCode::checkpoint, "and the disk is full")); });
  });
  CHECK(again.code == static_cast<int>(ExitCode::data));
  CHECK(again.output == "error: a record is torn [start of MPI, step 0]\n");
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which need more address space
TEST_CASE("the last action is done whatever becomes of the words: a stalled rank for whose report there is no thread") {
  const ScratchDirectory directory;
  const Ending ending = ending_of([&] {
    static FatalReport context(board());
    context.set_report_directory(directory.path());
    set_fatal_report(&context);
    const rlimit nothing_more{.rlim_cur = 1, .rlim_max = 1};
    ::setrlimit(RLIMIT_AS, &nothing_more);  // so no stack for another thread
    fatal(Error(ExitCode::stalled, "no progress"), [] { (void)!::write(STDERR_FILENO, "the lock is released\n", 21); });
  });
  CHECK(ending.code == static_cast<int>(ExitCode::stalled));
  CHECK(ending.output == "error: no progress [start of MPI, step 0]\nthe lock is released\n");
}
#endif

TEST_CASE("an error that all ranks have is reported after that of a rank that may know the cause") {
  const Ending ending = ending_of([] {
    board().set_failed_with_others(true);
    std::thread([] { fatal(Error(ExitCode::internal, "NCCL has lost its connection")); }).detach();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ::_exit(50);  // the other rank has ended the job
  });
  CHECK(ending.code == 50);
  CHECK(ending.output.empty());
}

TEST_CASE("an exception that a thread does not catch takes the same path") {
  const Ending ending = ending_of([] { std::thread([] { fail(ExitCode::data, "a record is torn"); }).join(); });
  CHECK(ending.code == static_cast<int>(ExitCode::data));
  CHECK(ending.output == "error: a record is torn [start of MPI, step 0]\n");
}

TEST_CASE("a crash is named before the process dies of it") {
  const Ending ending = ending_of([] { ::raise(SIGSEGV); });
  CHECK(ending.code == -SIGSEGV);
  CHECK_THAT(ending.output, ContainsSubstring("error: SIGSEGV (invalid memory access) [start of MPI, step 0]"));
}
