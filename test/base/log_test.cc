#include "lockstep/base/log.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "test/catch.h"
#include "test/redirected.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

struct Output {
  std::string out, err;
};

// What `work` prints, as the given rank of `size`.
template <class Work>
Output printed_by(int rank, int size, const Work& work) {
  const ScratchDirectory directory;
  set_log_identity(rank, size, "node7");
  {
    const Redirected out(STDOUT_FILENO, directory / "out"), err(STDERR_FILENO, directory / "err");
    work();
    log_repeated_warnings();
  }
  set_log_identity(0, 1, "");
  return {read_file(directory / "out"), read_file(directory / "err")};
}

}  // namespace

TEST_CASE("information is printed by rank 0 alone, warnings and errors by any rank with its name") {
  const auto all = [] {
    log_info("step {}", 3);
    log_warning("slow");
    log_error("lost");
  };
  const Output root = printed_by(0, 2, all);
  CHECK(root.out == "step 3\n");
  CHECK(root.err == "rank 0@node7: warning: slow\nrank 0@node7: error: lost\n");
  const Output other = printed_by(1, 2, all);
  CHECK(other.out.empty());
  CHECK(other.err == "rank 1@node7: warning: slow\nrank 1@node7: error: lost\n");
  CHECK(printed_by(0, 1, all).err == "warning: slow\nerror: lost\n");
}

TEST_CASE("lines below the chosen level are left out") {
  const auto all = [] {
    log_status("3 %");
    log_info("step {}", 3);
    log_warning("slow");
    log_urgent(LogLevel::warning, "stalls");
    log_error("lost");
    log_status({});
  };
  set_log_style(LogLevel::warning, false);
  const Output warnings = printed_by(0, 1, all);
  set_log_style(LogLevel::error, false);
  const Output errors = printed_by(0, 1, all);
  set_log_style(LogLevel::info, false);
  CHECK(warnings.out.empty());
  CHECK(warnings.err == "warning: slow\nwarning: stalls\nerror: lost\n");
  CHECK(errors.out.empty());
  CHECK(errors.err == "error: lost\n");
}

TEST_CASE("lines begin with the time where that is wanted") {
  set_log_style(LogLevel::info, true);
  CHECK(log_has_time());
  const Output output = printed_by(1, 2, [] { log_warning("slow"); });
  const Output root = printed_by(0, 2, [] { log_info("step {}", 3); });
  set_log_style(LogLevel::info, false);
  const std::string time = "2026-11-27 21:43:10.123456";
  REQUIRE(root.out.size() > time.size());
  for (size_t i = 0; i < time.size(); ++i) {
    const bool digit = root.out[i] >= '0' && root.out[i] <= '9';
    CHECK((digit ? '0' : root.out[i]) == (time[i] >= '0' && time[i] <= '9' ? '0' : time[i]));
  }
  CHECK(root.out.substr(time.size()) == ": step 3\n");
  CHECK(output.err.substr(time.size()) == ": rank 1@node7: warning: slow\n");
}

TEST_CASE("where colors are wanted the words warning and error have them, and nothing else") {
  set_log_colors(true);
  const Output output = printed_by(1, 2, [] {
    log_warning("slow");
    log_error("lost");
    log_urgent(LogLevel::warning, "stalls");
    log_from_signal_handler({"SIGSEGV"});
  });
  const Output root = printed_by(0, 1, [] { log_info("step {}", 3); });
  set_log_colors(false);
  CHECK(output.err ==
        "rank 1@node7: \x1b[33mwarning:\x1b[0m slow\nrank 1@node7: \x1b[31merror:\x1b[0m lost\n"
        "rank 1@node7: \x1b[33mwarning:\x1b[0m stalls\nrank 1@node7: \x1b[31merror:\x1b[0m SIGSEGV\n");
  CHECK(root.out == "step 3\n");
}

TEST_CASE("what a message quotes cannot act on the terminal, whichever way it is logged") {
  const char* hostile = "a\x1b[1A\x1b[2K\rb";
  const Output output = printed_by(1, 2, [&] {
    log_warning("{}", hostile);
    log_error("{}\nsecond line", hostile);
    log_urgent(LogLevel::error, hostile);
    log_from_signal_handler({hostile});
  });
  CHECK(output.err ==
        "rank 1@node7: warning: a\\x1b[1A\\x1b[2K\\x0db\n"
        "rank 1@node7: error: a\\x1b[1A\\x1b[2K\\x0db\nsecond line\n"
        "rank 1@node7: error: a\\x1b[1A\\x1b[2K\\x0db\n"
        "rank 1@node7: error: a?[1A?[2K?b\n");
  CHECK(printed_by(0, 1, [&] { log_info("{}", hostile); }).out == "a\\x1b[1A\\x1b[2K\\x0db\n");
}

TEST_CASE("a warning that comes again is counted, and told once more at the end") {
  const Output output = printed_by(0, 1, [] {
    for (int i = 0; i < 1000; ++i) log_warning("no space");
    log_warning("another");
  });
  CHECK(output.err == "warning: no space\nwarning: another\nwarning: 1000 times: no space\n");
}

TEST_CASE("urgent words come out while another thread's line is stuck, and are given up where nobody reads") {
  std::array<int, 2> pipe{};
  REQUIRE(::pipe(pipe.data()) == 0);
  const ScratchDirectory directory;
  const int out = ::dup(STDOUT_FILENO);
  ::dup2(pipe[1], STDOUT_FILENO);
  std::thread stuck([] { log_info("{}", std::string(200'000, 'x')); });  // more than a pipe holds
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  {
    const Redirected err(STDERR_FILENO, directory / "err");
    log_urgent(LogLevel::error, "stalled");
  }
  CHECK(read_file(directory / "err") == "error: stalled\n");
  const int err = ::dup(STDERR_FILENO);
  ::dup2(pipe[1], STDERR_FILENO);
  log_urgent(LogLevel::error, "nobody reads this");  // returns
  ::dup2(err, STDERR_FILENO);
  std::array<char, 4096> bytes{};
  for (ssize_t left = 200'001; left > 0;) left -= ::read(pipe[0], bytes.data(), bytes.size());
  stuck.join();
  ::dup2(out, STDOUT_FILENO);
  for (const int descriptor : {out, err, pipe[0], pipe[1]}) ::close(descriptor);
}

TEST_CASE("the words of a signal handler have the rank's prefix and are cut to what fits") {
  const Output output = printed_by(2, 3, [] {
    const std::string place(1000, 'y');
    log_from_signal_handler({"SIGSEGV", " [", place.c_str(), "]"});
  });
  CHECK_THAT(output.err, ContainsSubstring("rank 2@node7: error: SIGSEGV [yyy"));
  CHECK(output.err.back() == '\n');
  CHECK(output.err.size() <= 512);
}

TEST_CASE("lines of several threads do not mix") {
  constexpr int kThreads = 4, kLines = 200;
  const Output output = printed_by(0, 1, [] {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([t] {
        for (int i = 0; i < kLines; ++i) log_info("thread {} line {} {}", t, i, std::string(200, 'x'));
      });
    }
  });
  std::istringstream lines(output.out);
  std::set<std::string> seen;
  for (std::string line; std::getline(lines, line);) seen.insert(line);
  CHECK(seen.size() == kThreads * kLines);
  CHECK(seen.contains(fmt::format("thread 3 line 199 {}", std::string(200, 'x'))));
}

TEST_CASE("a status line is erased before a line and drawn again below it") {
  const Output output = printed_by(0, 1, [] {
    log_status("[==> ]");
    log_info("step 3");
    log_status({});
  });
  CHECK(output.out == "\r\x1b[K[==> ]\r\x1b[Kstep 3\n[==> ]\r\x1b[K");
  CHECK(printed_by(1, 2, [] { log_status("[==> ]"); }).out.empty());
}
