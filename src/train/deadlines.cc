#include "lockstep/train/deadlines.h"

#include <utility>

#include "lockstep/base/parse_number.h"
#include "lockstep/config/keys.h"

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

WatchdogLimits limits_before_configuration(std::span<const Assignment> overrides,
                                           const EnvironmentLookup& environment) {
  Config config;
  Config::Watchdog& w = config.watchdog;
  const std::pair<const char*, double*> keys[] = {{"watchdog.warn_seconds", &w.warn_seconds},
                                                  {"watchdog.abort_seconds", &w.abort_seconds},
                                                  {"watchdog.start_warn_seconds", &w.start_warn_seconds},
                                                  {"watchdog.start_abort_seconds", &w.start_abort_seconds}};
  // Errors are reported later, when the whole configuration is loaded.
  const auto take = [](const std::string& text, double& to) {
    if (const auto value = parse_number<double>(text); value && *value >= 0) to = *value;
  };
  for (const auto& [name, value] : keys) {
    const ConfigKey* key = find_config_key(name);
    if (const auto text = environment(key->environment_variable().c_str())) take(*text, *value);
    for (const Assignment& given : overrides) {
      if (given.name == name) take(given.value, *value);
    }
  }
  const char* const switch_name = "watchdog.enabled";
  w.enabled = environment(find_config_key(switch_name)->environment_variable().c_str()) != "false";
  for (const Assignment& given : overrides) {
    if (given.name == switch_name) w.enabled = given.value != "false";
  }
  return watchdog_limits(config);
}

double wait_seconds(const Config& config, RunPhase phase) {
  const double limit = phase_limits(config, phase).abort_seconds;
  return limit > 0 ? limit : kYear;
}

}  // namespace lockstep
