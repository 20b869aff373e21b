// Accumulates, per rank, the time during which that rank's messages were the only ones missing.
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep {

// Waiting is attributed to a rank only if everything else has arrived: if several ranks are late, none of them is known
// to be the cause. The time between two updates counts only if the same rank was missing at both, because an interval
// in which a message arrived may have been spent receiving it.
//
// Not thread-safe; the communicator holds its lock.
class StragglerWaits {
 public:
  explicit StragglerWaits(int ranks) : seconds_(static_cast<size_t>(ranks)) {}

  // Records that `straggler` is the only rank whose messages are missing at `now` (monotonic_seconds()). -1 means that
  // messages of none or of several ranks are missing.
  void update(int straggler, double now) {
    if (straggler >= 0 && straggler == straggler_) seconds_[straggler] += now - last_update_;
    straggler_ = straggler;
    last_update_ = now;
  }
  const std::vector<double>& seconds() const { return seconds_; }  // by rank

 private:
  std::vector<double> seconds_;
  int straggler_ = -1;
  double last_update_ = 0;
};

}  // namespace lockstep
