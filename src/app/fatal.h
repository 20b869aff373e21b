// Ends the job, from any thread, after an error that may have occurred on this rank alone.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/comm/group/agreement.h"
#include "lockstep/comm/supervision/progress_board.h"

namespace lockstep {

// The context of a report of a fatal error on this rank. Owned by main. The directory of reports is set once, when it
// is known.
class FatalReport {
 public:
  explicit FatalReport(const ProgressBoard& board) : board_(board) {}
  void set_report_directory(std::string directory) {
    report_directory_ = std::move(directory);
    directory_known_ = true;
  }
  const ProgressBoard& board() const { return board_; }
  std::string report_directory() const { return directory_known_ ? report_directory_ : std::string(); }

 private:
  const ProgressBoard& board_;
  std::string report_directory_;
  std::atomic<bool> directory_known_{false};
};

// Called by main before other threads start, and with null before `context` is destroyed. Uncaught exceptions then call
// abort_on_exception(), and SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT are reported with rank and phase before they
// end the process.
void set_fatal_report(const FatalReport* context);

// Logs the error with the position of this rank, writes a report if a rank has stalled, calls `last`, which must not
// wait for other ranks, and ends the job. If several threads fail together, the first one does so. Never returns,
// whatever locks other threads hold. Does not finalize MPI, because the other ranks would then wait forever.
[[noreturn]] void fatal(const Error& error, const std::function<void()>& last = {}) noexcept;

// Does the same for the exception that is being handled.
[[noreturn]] void abort_on_exception(const std::function<void()>& last = {}) noexcept;

// Runs `work`, which exchanges data between ranks, and returns its result. An error that is not agreed on by all ranks
// ends the job before anything is destroyed: a reduction in flight may still write to the arenas, and a destructor may
// wait for a thread that is stuck.
template <class Work>
auto run_or_abort(const Work& work, const std::function<void()>& last = {}) {
  try {
    return work();
  } catch (const AgreedError&) {
    throw;
  } catch (...) {
    abort_on_exception(last);
  }
}

}  // namespace lockstep
