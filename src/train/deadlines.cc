#include "lockstep/train/deadlines.h"

namespace lockstep {
namespace {

constexpr double kYear = 365.0 * 24 * 3600;

PhaseLimits own_limits(const Config::Watchdog& w, RunPhase phase) {
  switch (phase) {
    case RunPhase::start:
      return {w.start_warn_seconds, w.start_abort_seconds};
    case RunPhase::scan:
      return {w.scan_warn_seconds, w.scan_abort_seconds};
    case RunPhase::evaluate:
      return {w.evaluate_warn_seconds, w.evaluate_abort_seconds};
    case RunPhase::save:
      return {w.save_warn_seconds, w.save_abort_seconds};
    case RunPhase::train:
      break;
  }
  return {};
}

}  // namespace

PhaseLimits phase_limits(const Config& config, RunPhase phase) {
  const Config::Watchdog& w = config.watchdog;
  PhaseLimits limits = own_limits(w, phase);
  if (limits.warn_seconds == 0) limits.warn_seconds = w.warn_seconds;
  if (limits.abort_seconds == 0) limits.abort_seconds = w.abort_seconds;
  return limits;
}

double wait_seconds(const Config& config, RunPhase phase) {
  const double limit = phase_limits(config, phase).abort_seconds;
  return limit > 0 ? limit : kYear;
}

}  // namespace lockstep
