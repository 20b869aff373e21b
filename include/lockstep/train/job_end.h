// The time at which the batch system ends the job, if it is known.
#pragma once

#include <limits>

#include "lockstep/base/environment.h"

namespace lockstep {

// A wall-clock time. If it is unknown, there is always time left.
class JobEnd {
 public:
  JobEnd() = default;
  // Reads LOCKSTEP_JOB_END or, if that is not set, SLURM_JOB_END_TIME, in seconds since 1970. The first is set on
  // purpose for this run, so an invalid value throws Error(config). The second may be left over from another job or be
  // "Unknown", so a value that is not in the future is ignored with a warning.
  explicit JobEnd(const EnvironmentLookup& environment);

  double seconds_left() const;

  // Returns whether a run must stop now to finish in time. Steps of `step_seconds` in all, a save in flight
  // and the last save remain, and each may take half as long again as the longest one so far.
  bool must_stop(double step_seconds, double save_seconds) const;

 private:
  double seconds_ = std::numeric_limits<double>::infinity();
};

}  // namespace lockstep
