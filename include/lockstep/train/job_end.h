// When the batch system will end the job, where it says so.
#pragma once

#include <limits>

#include "lockstep/comm/supervision/launcher.h"

namespace lockstep {

// A point of the wall clock; a value. Without one there is always time.
class JobEnd {
 public:
  JobEnd() = default;
  // From LOCKSTEP_JOB_END, else from SLURM_JOB_END_TIME: seconds since 1970. Somebody set the first for this run, so
  // Error(config) is thrown when it is no time; the second, which may be left over from another job or say "Unknown",
  // is ignored with a warning when it is no time in the future.
  explicit JobEnd(const EnvironmentLookup& environment);

  bool known() const { return seconds_ < std::numeric_limits<double>::infinity(); }
  double seconds_left() const;

 private:
  double seconds_ = std::numeric_limits<double>::infinity();
};

// What is left to do once the run stops, in seconds as measured so far.
struct StopCosts {
  double step = 0;
  double save = 0;
};

// Whether a run must stop now to be done in time: the step that begins, a save in flight and the last save are still to
// come, each perhaps half as long again as before.
bool must_stop(double seconds_left, const StopCosts& costs);

}  // namespace lockstep
