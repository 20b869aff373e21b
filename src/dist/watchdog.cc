#include "lockstep/dist/watchdog.h"

#include <fmt/format.h>

#include <chrono>

#include "lockstep/base/clock.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kLookEvery{100};

}  // namespace

const char* run_phase_name(RunPhase phase) {
  switch (phase) {
    case RunPhase::start:
      return "start";
    case RunPhase::scan:
      return "scan of the data";
    case RunPhase::train:
      return "training";
    case RunPhase::evaluate:
      return "evaluation";
    case RunPhase::save:
      return "last save";
  }
  return "?";
}

Watchdog::Watchdog(WatchdogOptions options)
    : options_(std::move(options)), since_(monotonic_seconds()), thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::progress(RunPhase phase, int64_t step) {
  std::lock_guard lock(mutex_);
  phase_ = phase;
  step_ = step;
  since_ = monotonic_seconds();
  warned_ = false;
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kLookEvery, [&] { return stop_; })) {
    const double quiet = monotonic_seconds() - since_;
    const PhaseLimits& limits = options_.limits[static_cast<int>(phase_)];
    const bool abort = limits.abort_seconds > 0 && quiet >= limits.abort_seconds;
    const bool warn = !warned_ && limits.warn_seconds > 0 && quiet >= limits.warn_seconds;
    if (!abort && !warn) continue;
    const std::string text =
        fmt::format("no progress for {:.0f} s in phase \"{}\" after step {}", quiet, run_phase_name(phase_), step_);
    warned_ = true;
    lock.unlock();  // the callbacks may log, which takes time on a slow terminal
    abort ? options_.abort(text) : options_.warn(text);
    lock.lock();
  }
}

}  // namespace lockstep
