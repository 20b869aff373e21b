#include "lockstep/train/job_end.h"

#include <chrono>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/parse_number.h"
#include "lockstep/base/printable.h"

namespace lockstep {
namespace {

constexpr const char* kOwn = "LOCKSTEP_JOB_END";
constexpr const char* kSlurm = "SLURM_JOB_END_TIME";

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

JobEnd::JobEnd(const EnvironmentLookup& environment) {
  const std::string own = environment(kOwn).value_or(""), slurm = environment(kSlurm).value_or("");
  if (!own.empty()) {
    const auto seconds = parse_number<double>(own);
    if (!seconds || *seconds <= 0) {
      fail(ExitCode::config, "environment variable {} = '{}' is no time: seconds since 1970 are wanted (date +%s)",
           kOwn, printable(own));
    }
    seconds_ = *seconds;
  } else if (!slurm.empty()) {
    // Slurm writes "Unknown" or 0 if a job has no end. A shell that outlived its job still has that job's end.
    const auto seconds = parse_number<double>(slurm);
    if (seconds && *seconds > now()) {
      seconds_ = *seconds;
    } else {
      log_warning("environment variable {} = '{}' is ignored: it is no time in the future", kSlurm, printable(slurm));
    }
  }
}

double JobEnd::seconds_left() const { return seconds_ - now(); }

bool JobEnd::must_stop(double step_seconds, double save_seconds) const {
  constexpr double kReserve = 5, kSlower = 1.5;
  return seconds_left() < kReserve + kSlower * (step_seconds + 2 * save_seconds);
}

}  // namespace lockstep
