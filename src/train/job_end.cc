#include "lockstep/train/job_end.h"

#include <charconv>
#include <chrono>

#include "lockstep/base/error.h"

namespace lockstep {

JobEnd::JobEnd(const EnvironmentLookup& environment) {
  for (const char* name : {"LOCKSTEP_JOB_END", "SLURM_JOB_END_TIME"}) {
    const auto text = environment(name);
    if (!text || text->empty()) continue;
    const char* const end = text->data() + text->size();
    const auto [stop, status] = std::from_chars(text->data(), end, seconds_);
    if (status != std::errc() || stop != end || !(seconds_ > 0)) {
      fail(ExitCode::config, "environment variable {} = '{}' is no time: seconds since 1970 are wanted (date +%s)",
           name, *text);
    }
    return;
  }
}

double JobEnd::seconds_left() const {
  using Seconds = std::chrono::duration<double>;
  return seconds_ - Seconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

bool must_stop(double seconds_left, const StopCosts& costs) {
  constexpr double kReserve = 5, kSlower = 1.5;
  return seconds_left < kReserve + kSlower * (2 * costs.step + 2 * costs.save);
}

}  // namespace lockstep
