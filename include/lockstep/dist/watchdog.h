// Notices when this rank stops making progress, wherever it is stuck: in a read, a kernel, a wait.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace lockstep {

// What a rank is doing; each has its own limits.
enum class RunPhase : uint8_t { start, scan, train, evaluate, save };
inline constexpr int kRunPhases = 5;
const char* run_phase_name(RunPhase phase);

// Seconds without progress; 0: never.
struct PhaseLimits {
  double warn_seconds = 0;
  double abort_seconds = 0;
};

struct WatchdogOptions {
  PhaseLimits limits[kRunPhases];
  std::function<void(const std::string&)> warn;   // called on the watchdog's thread
  std::function<void(const std::string&)> abort;  // must end the process
};

// Owned by main, on every rank; one thread of its own. Waits between ranks have deadlines of their own, a little
// shorter, that can name the rank that is missing: this is for everything else.
class Watchdog {
 public:
  explicit Watchdog(WatchdogOptions options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // From any thread: this rank moves on. `step` is for the messages.
  void progress(RunPhase phase, int64_t step);

 private:
  void watch();

  const WatchdogOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  RunPhase phase_ = RunPhase::start;
  int64_t step_ = 0;
  double since_;
  bool warned_ = false;
  bool stop_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace lockstep
