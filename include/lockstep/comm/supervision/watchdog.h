// Notices when this rank stops making progress, wherever it is stuck: in a read, a kernel, a wait for another rank.
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

// Seconds without progress; 0: never.
struct PhaseLimits {
  double warn_seconds = 0;
  double abort_seconds = 0;
};
using WatchdogLimits = std::array<PhaseLimits, kRunPhases>;  // by RunPhase

struct WatchdogOptions {
  WatchdogLimits limits{};
  std::function<void(const std::string&)> warn;   // called on the watchdog's thread
  std::function<void(const std::string&)> abort;  // must end the process
};

// Owned by main, on every rank, from before MPI starts until after it has ended; one thread of its own, which calls
// nothing that another rank or a disk could hold up. Waits between ranks have deadlines of their own, a little shorter.
//
// Time in which the whole process stood still (suspended, then continued) does not count.
class Watchdog {
 public:
  explicit Watchdog(WatchdogOptions options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // From any thread: this rank moves on. `step` is for the messages.
  void progress(RunPhase phase, int64_t step);
  void set_limits(const WatchdogLimits& limits);
  ProgressBoard& board() { return board_; }

 private:
  void watch();
  void look();

  const WatchdogOptions options_;
  ProgressBoard board_;
  std::mutex mutex_;
  std::condition_variable changed_;
  WatchdogLimits limits_;
  bool warned_ = false;  // of the thread: about this pause
  bool stop_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace lockstep
