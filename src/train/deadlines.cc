#include "lockstep/train/deadlines.h"

#include <limits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/config/keys.h"
#include "lockstep/config/value.h"

namespace lockstep {
namespace {

constexpr double kYear = 365.0 * 24 * 3600;
constexpr double kGraceSeconds = 5;  // waits between ranks have failed by then

PhaseLimits own_limits(const Config::Watchdog& w, RunPhase phase) {
  switch (phase) {
    case RunPhase::mpi:
    case RunPhase::config:
    case RunPhase::start:
    case RunPhase::compile:
    case RunPhase::first_step:
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
  if (!w.enabled) return {};
  PhaseLimits limits = own_limits(w, phase);
  if (limits.warn_seconds == 0) limits.warn_seconds = w.warn_seconds;
  if (limits.abort_seconds == 0) limits.abort_seconds = w.abort_seconds;
  return limits;
}

WatchdogLimits watchdog_limits(const Config& config) {
  WatchdogLimits limits;
  for (size_t i = 0; i < limits.size(); ++i) {
    const auto phase = static_cast<RunPhase>(i);
    limits[i] = phase_limits(config, phase);
    if (limits[i].abort_seconds > 0 && phase != RunPhase::mpi) limits[i].abort_seconds += kGraceSeconds;
  }
  return limits;
}

Config configuration_before_start(std::span<const Assignment> overrides, const EnvironmentLookup& environment) {
  Config config;
  for (const ConfigKey& key : config_keys()) {
    if (key.section != "watchdog" && key.section != "comm") continue;
    std::optional<std::string> text = environment(key.environment_variable().c_str());
    for (const Assignment& given : overrides) {
      if (given.name == key.full_name()) text = given.value;
    }
    if (!text) continue;
    try {
      ConfigValue value = parse_config_value(key, *text, "");
      check_config_value(key, value, "");
      key.member.set(config, std::move(value));
    } catch (const Error&) {  // It is reported later, when the whole configuration is loaded.
    }
  }
  return config;
}

double wait_seconds(const Config& config, RunPhase phase) {
  const double limit = phase_limits(config, phase).abort_seconds;
  return limit > 0 ? limit : kYear;
}

double slow_disk_seconds(const Config& config) {
  const double seconds = phase_limits(config, RunPhase::save).warn_seconds;
  return seconds > 0 ? seconds : std::numeric_limits<double>::infinity();
}

WaitLimits wait_limits(const Config& config) {
  WaitLimits limits;
  for (size_t i = 0; i < limits.size(); ++i) limits[i] = wait_seconds(config, static_cast<RunPhase>(i));
  return limits;
}

}  // namespace lockstep
