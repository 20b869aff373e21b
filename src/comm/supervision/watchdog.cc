#include "lockstep/comm/supervision/watchdog.h"

#include <fmt/format.h>

#include <chrono>

#include "comm/supervision/local_ranks.h"
#include "lockstep/base/activity.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/thread_name.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kLookEvery{100};
constexpr double kStoodStillSeconds = 3;  // between two looks: not a busy machine but a suspended process

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
  double last_look = monotonic_seconds();
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kLookEvery, [&] { return stop_; })) {
    lock.unlock();  // the callbacks may log, which takes time on a slow terminal
    const double now = monotonic_seconds();
    if (now - last_look > kStoodStillSeconds) board_.discount(now - last_look);
    look();
    last_look = monotonic_seconds();
    lock.lock();
  }
}

void Watchdog::look() {
  const RankPosition here = board_.own();
  const double quiet = here.quiet_seconds;
  PhaseLimits limits;
  {
    std::lock_guard lock(mutex_);
    limits = limits_[static_cast<size_t>(here.phase)];
  }
  const bool abort = limits.abort_seconds > 0 && quiet >= limits.abort_seconds;
  const bool quiet_enough = limits.warn_seconds > 0 && quiet >= limits.warn_seconds;
  const bool warn = quiet_enough && !warned_;
  warned_ = quiet_enough;
  if (!abort && !warn) return;
  const std::string wait = board_.describe_wait();
  std::string text = fmt::format("no progress for {:.0f} s in phase {}, step {}{}", quiet, run_phase_name(here.phase),
                                 here.step, wait.empty() ? "" : "; waits for " + wait);
  // A read or a decode that does not end holds up everybody, and the one who waits for it has no name for it.
  const auto busy = describe_activities(quiet / 2);
  if (!busy.empty()) text += "; " + busy.front();
  if (here.phase == RunPhase::mpi) text += "; " + describe_local_ranks(process_environment());
  if (abort) {
    options_.abort(text);
  } else if (board_.is_reporter()) {
    options_.warn(text);
  }
}

}  // namespace lockstep
