#include "lockstep/comm/supervision/watchdog.h"

#include <fmt/format.h>

#include <chrono>

#include "comm/supervision/local_ranks.h"
#include "lockstep/base/activity.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/thread_name.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kCheckInterval{100};
// A longer time between two checks means that the process was suspended and not that the machine is busy.
constexpr double kSuspendedSeconds = 3;

}  // namespace

Watchdog::Watchdog(WatchdogOptions options)
    : options_(std::move(options)), limits_(options_.limits), thread_([this] {
        name_thread("watchdog");
        watch();
      }) {}

Watchdog::~Watchdog() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::progress(RunPhase phase, int64_t step) { board_.progress(phase, step); }

void Watchdog::set_limits(const WatchdogLimits& limits) {
  std::lock_guard lock(mutex_);
  limits_ = limits;
}

void Watchdog::watch() {
  double last_check = monotonic_seconds();
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kCheckInterval, [&] { return stop_; })) {
    lock.unlock();  // the callbacks may log, which takes time on a slow terminal
    const double now = monotonic_seconds();
    if (now - last_check > kSuspendedSeconds) board_.discount(now - last_check);
    check();
    last_check = monotonic_seconds();
    lock.lock();
  }
}

void Watchdog::check() {
  const RankPosition own = board_.own();
  const double quiet = own.quiet_seconds;
  PhaseLimits limits;
  {
    std::lock_guard lock(mutex_);
    limits = limits_[static_cast<size_t>(own.phase)];
  }
  const bool abort = limits.abort_seconds > 0 && quiet >= limits.abort_seconds;
  const bool quiet_enough = limits.warn_seconds > 0 && quiet >= limits.warn_seconds;
  // Ranks that hang together do so at slightly different times.
  const double others_quiet = limits.warn_seconds / 2;
  const bool starts_mpi = own.phase == RunPhase::mpi;
  const bool warn = quiet_enough && !warned_ &&
                    (starts_mpi ? is_lowest_local_rank(process_environment()) : board_.is_reporter(others_quiet));
  // A rank that hangs by itself warns later if the lower one makes progress again.
  warned_ = quiet_enough && (warned_ || warn || own.waiting || starts_mpi);
  if (!abort && !warn) return;
  const std::string wait = board_.describe_wait();
  std::string text = fmt::format("no progress for {:.0f} s in phase {}, step {}{}", quiet, run_phase_name(own.phase),
                                 own.step, wait.empty() ? "" : "; waits for " + wait);
  // A read or a decode that hangs blocks the whole rank, and the waiting code cannot name it. The activities of the
  // threads can.
  const auto busy = describe_activities(quiet / 2);
  if (!busy.empty()) text += "; " + busy.front();
  if (starts_mpi) text += "; " + describe_local_ranks(process_environment());
  abort ? options_.abort(text) : options_.warn(text + board_.others_without_progress(others_quiet));
}

}  // namespace lockstep
