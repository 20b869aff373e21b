// Detects that this rank makes no progress, wherever it is stuck: in a read, a kernel, or a wait for another rank.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "lockstep/comm/supervision/progress_board.h"

namespace lockstep {

// Seconds without progress after which the watchdog warns or aborts; 0 disables either.
struct PhaseLimits {
  double warn_seconds = 0;
  double abort_seconds = 0;
};
using WatchdogLimits = std::array<PhaseLimits, kRunPhases>;  // indexed by RunPhase

struct WatchdogOptions {
  WatchdogLimits limits{};
  std::function<void(const std::string&)> warn;   // called on the watchdog's thread
  std::function<void(const std::string&)> abort;  // must end the process
};

// Owned by main on every rank, from before MPI_Init until after MPI_Finalize. It runs a thread of its own, which calls
// nothing that another rank or a disk could block. Waits for other ranks have their own, slightly shorter deadlines.
//
// Time during which the whole process was suspended does not count.
class Watchdog {
 public:
  explicit Watchdog(WatchdogOptions options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Records that this rank has made progress. May be called from any thread. `step` appears in messages.
  void progress(RunPhase phase, int64_t step);
  void set_limits(const WatchdogLimits& limits);
  ProgressBoard& board() { return board_; }

 private:
  void watch();
  void check();

  const WatchdogOptions options_;
  ProgressBoard board_;
  std::mutex mutex_;
  std::condition_variable changed_;
  WatchdogLimits limits_;
  bool warned_ = false;  // about the current lack of progress; only the thread uses it
  bool stop_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace lockstep
