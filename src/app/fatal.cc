#include "app/fatal.h"

#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <thread>

#include "lockstep/base/log.h"
#include "lockstep/base/parse_number.h"
#include "lockstep/comm/group/agreement.h"
#include "lockstep/comm/group/mpi_session.h"
#include "lockstep/comm/group/rank_names.h"
#include "lockstep/comm/supervision/launcher.h"
#include "lockstep/io/file.h"
#include "lockstep/io/file_thread.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds kOthersReport{1};       // in which the other ranks write theirs before all end
constexpr std::chrono::milliseconds kOtherEnds{1500};  // time in which the reporting rank ends the job
constexpr std::chrono::milliseconds kOtherEndsLargeJob{3000};
constexpr int kMostTurns = 3;
constexpr double kReportSeconds = 2;

constexpr std::chrono::seconds kFirstEnds{15};  // time in which the thread that failed first ends the job
static_assert(kFirstEnds > kOthersReport + kMostTurns * kOtherEndsLargeJob + std::chrono::seconds(2));

std::atomic<const FatalReport*> the_context{nullptr};
std::atomic<int> the_code{0};            // of the thread that failed first
thread_local bool failed_first = false;  // whether this thread failed first

// Returns the path of the report, or nothing if it could not be written in time, because its disk may be the one that
// does not answer.
std::string write_report(const FatalReport& context) {
  const std::string directory = context.report_directory();
  if (directory.empty()) return {};
  const std::string path = fmt::format("{}/stall-report.rank{}.txt", directory, log_rank());
  const auto written = std::make_shared<std::atomic<bool>>(false);
  FileThread writer("report", [path, written, text = context.board().report()] {
    try {
      write_text_atomically(path, text, ExitCode::stalled);
      *written = true;
    } catch (...) {  // the message states the error anyway
    }
  });
  return writer.join_within(kReportSeconds) && *written ? path : std::string();
}

// Returns how many ranks would report before this one. Before MPI has started, no heartbeat says which of the lower
// ranks are alive.
int reporting_before(const ProgressBoard& board) {
  if (board.own().phase != RunPhase::mpi) return board.alive_below();
  return parse_number<int>(process_environment()("PMIX_RANK").value_or("")).value_or(0);
}

void speak(const Error& error) {
  const FatalReport* context = the_context.load();
  if (!context) {
    log_urgent(LogLevel::error, error.what());
    return;
  }
  const ProgressBoard& board = context->board();
  const bool stalled = error.code() == ExitCode::stalled;
  std::string report;
  if (stalled || board.failed_with_others()) {
    const auto claim = launch_claim(process_environment());
    const bool large_job = claim && claim->processes > kMostRankLines;
    const auto report_to_file = [&] {
      try {
        report = write_report(*context);
      } catch (...) {  // there is no memory or no thread for the report
      }
      if (!report.empty()) report = "; report: " + report;
    };
    if (stalled && !large_job) report_to_file();
    // All ranks that wait for the same one arrive here together. The lowest one reports first and meanwhile ends the
    // others, in a large job before they write their files.
    const auto turn = large_job ? kOtherEndsLargeJob : kOtherEnds;
    std::this_thread::sleep_for(kOthersReport + turn * std::min(reporting_before(board), kMostTurns));
    if (stalled && large_job) report_to_file();
  }
  log_urgent(LogLevel::error, fmt::format("{} [{}]{}", error.what(), board.position(), report));
}

// Runs even if the report has failed: it may release a lock for which others wait.
void do_last(const std::function<void()>& last) noexcept {
  try {
    if (last) last();
  } catch (...) {
  }
}

[[noreturn]] void on_terminate() {
  if (std::current_exception()) abort_on_exception();
  fatal(Error(ExitCode::internal, "std::terminate was called"));
}

// Makes only calls that are allowed in a signal handler. The process then dies of the signal, as the launcher expects.
void on_crash(int signal, siginfo_t*, void*) {
  static std::atomic_flag crashing = ATOMIC_FLAG_INIT;
  ::signal(signal, SIG_DFL);
  if (!crashing.test_and_set()) {
    const char* what = signal == SIGSEGV   ? "SIGSEGV (invalid memory access)"
                       : signal == SIGBUS  ? "SIGBUS (a mapped file shrank, or memory failed)"
                       : signal == SIGFPE  ? "SIGFPE (invalid arithmetic)"
                       : signal == SIGABRT ? "SIGABRT (a library gave up)"
                                           : "SIGILL (an instruction this processor lacks)";
    std::array<char, 64> place{};
    if (const FatalReport* context = the_context.load()) context->board().write_position(place);
    log_from_signal_handler({what, " [", place.data(), "]; where it was:"});
    std::array<void*, 32> frames{};
    ::backtrace_symbols_fd(frames.data(), ::backtrace(frames.data(), frames.size()), STDERR_FILENO);
  }
  ::raise(signal);
}

void install_crash_handlers() {
  std::array<void*, 1> frame{};
  ::backtrace(frame.data(), frame.size());  // loads its library now, because a signal handler cannot
  static std::array<char, 64 * 1024> stack;
  const stack_t alternative{.ss_sp = stack.data(), .ss_flags = 0, .ss_size = stack.size()};
  ::sigaltstack(&alternative, nullptr);
  struct sigaction action {};
  action.sa_sigaction = on_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::sigaction(signal, &action, nullptr);
}

}  // namespace

void set_fatal_report(const FatalReport* context) {
  if (!the_context.exchange(context) && context) {
    std::set_terminate(on_terminate);
    install_crash_handlers();
  }
}

void fatal(const Error& error, const std::function<void()>& last) noexcept {
  const int code = static_cast<int>(error.code());
  int first = 0;
  if (!the_code.compare_exchange_strong(first, code)) {
    // Later failures are usually consequences of the first, so other threads wait for its report. The first thread does
    // not wait if its own report fails.
    if (!failed_first) std::this_thread::sleep_for(kFirstEnds);
    abort_job(first);
  }
  failed_first = true;
  try {
    speak(error);
  } catch (...) {  // for example without memory; the other ranks must be ended anyway
  }
  do_last(last);
  abort_job(code);
}

void abort_on_exception(const std::function<void()>& last) noexcept {
  std::optional<Error> error;
  try {
    error = current_error();
  } catch (...) {  // there is no memory for its text
  }
  if (error) fatal(*error, last);
  do_last(last);
  abort_job(static_cast<int>(ExitCode::internal));
}

}  // namespace lockstep
