// The end of a job for something that this rank alone may have met, from any thread: the one fatal path.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/comm/group/agreement.h"
#include "lockstep/comm/supervision/progress_board.h"

namespace lockstep {

// What a fatal report needs to say where this rank is. Owned by main. The directory for reports is given once, when it
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

// Main calls it with its context before other threads start, and with null before that dies. From then on an exception
// that no thread catches takes the fatal path too, and SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT are named, with rank
// and phase, before they end the process.
void set_fatal_report(const FatalReport* context);

// Says what is wrong and where this rank is, writes a report when a rank has stalled, does `last`, which must not wait
// for other ranks, and ends all of them. Of threads that fail together the first does that. Never returns, whatever
// locks other threads hold. Finalizing MPI here would hang the other ranks.
[[noreturn]] void fatal(const Error& error, const std::function<void()>& last = {}) noexcept;

// The same for the exception that is being handled.
[[noreturn]] void abort_on_exception(const std::function<void()>& last = {}) noexcept;

// Runs `work`, which exchanges data between ranks. An error that they do not agree on ends the job on the spot, before
// anything is destroyed: a reduction in flight may still write to the arenas, and a destructor may wait for a thread
// that is stuck.
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
