// The limits of the watchdog section, by phase.
#pragma once

#include <span>

#include "lockstep/comm/supervision/launcher.h"
#include "lockstep/comm/supervision/watchdog.h"
#include "lockstep/config/config.h"
#include "lockstep/config/load.h"

namespace lockstep {

// A phase's own keys where they are set, else the general ones.
PhaseLimits phase_limits(const Config& config, RunPhase phase);

// All of them, for the watchdog: a little above the limits of waits between ranks, which end first and know best. There
// are none while MPI starts.
WatchdogLimits watchdog_limits(const Config& config);

// Before there is a configuration: what command line and environment of this process say, else the defaults.
WatchdogLimits limits_before_configuration(std::span<const Assignment> overrides, const EnvironmentLookup& environment);

// What a wait for something that rank 0 does alone, under the same limit, is longer, so that rank 0 is the one to fail.
inline constexpr double kRootSpeaksSeconds = 2;

// The same where rank 0 uses files meanwhile: its watchdog, which names them, ends the job before the others do.
inline constexpr double kRootFilesSeconds = 7;

// For waits between ranks: the phase's abort limit, or a year where that is 0 (never).
double wait_seconds(const Config& config, RunPhase phase);

}  // namespace lockstep
