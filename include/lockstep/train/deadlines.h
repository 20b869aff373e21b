// The limits of the watchdog section, by phase.
#pragma once

#include "lockstep/dist/watchdog.h"
#include "lockstep/train/config.h"

namespace lockstep {

// A phase's own keys where they are set, else the general ones.
PhaseLimits phase_limits(const Config& config, RunPhase phase);

// For waits between ranks: the phase's abort limit, or a year where that is 0 (never).
double wait_seconds(const Config& config, RunPhase phase);

}  // namespace lockstep
