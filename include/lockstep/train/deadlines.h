// The time limits of the [watchdog] section, by phase.
#pragma once

#include <span>

#include "lockstep/base/environment.h"
#include "lockstep/comm/group/process_group.h"
#include "lockstep/comm/supervision/watchdog.h"
#include "lockstep/config/config.h"
#include "lockstep/config/load.h"

namespace lockstep {

// Returns the limits of a phase: its own keys if they are set, otherwise the general ones.
PhaseLimits phase_limits(const Config& config, RunPhase phase);

// Returns the limits of all phases for the watchdog. They are slightly above the limits of waits between ranks, because
// those waits should fail first: their errors say more. There are no limits while MPI starts.
WatchdogLimits watchdog_limits(const Config& config);

// Returns what counts before the configuration has been loaded: the sections watchdog and comm with the values of the
// command line and the environment of this process, otherwise the defaults.
Config configuration_before_start(std::span<const Assignment> overrides, const EnvironmentLookup& environment);

// When ranks wait for work that rank 0 does alone with the same limit, their limit is longer by this time, so that rank
// 0 fails first and reports the reason.
inline constexpr double kRootSpeaksSeconds = 2;

// The same if rank 0 uses files: its watchdog, which names the files, then ends the job before the other ranks do.
inline constexpr double kRootFilesSeconds = 7;

// Returns the limit of a wait in this phase: its abort limit, or one year if that is 0 (never).
double wait_seconds(const Config& config, RunPhase phase);
// Returns the time after which a save or another use of the run's files is reported as slow; infinity for never.
double slow_disk_seconds(const Config& config);
// Returns the limits of waits between ranks, which belong to the group: wait_seconds() by phase.
WaitLimits wait_limits(const Config& config);

}  // namespace lockstep
