// For how long a rank has waited for each other one alone.
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep {

// A rank that is slow to send or to take what is sent keeps all others waiting when everything else has arrived; what
// several are late with accuses none of them. Fed with looks at what is missing. A stretch between two looks counts
// where the same rank was missing at both: one in which a message came may have been spent in receiving it.
class StragglerWaits {
 public:
  explicit StragglerWaits(int ranks) : seconds_(static_cast<size_t>(ranks)) {}

  // At a time of monotonic_seconds() one rank alone was waited for; -1: none, several.
  void look(int rank, double now) {
    if (rank >= 0 && rank == rank_) seconds_[static_cast<size_t>(rank)] += now - looked_;
    rank_ = rank;
    looked_ = now;
  }
  const std::vector<double>& seconds() const { return seconds_; }  // by rank

 private:
  std::vector<double> seconds_;
  int rank_ = -1;
  double looked_ = 0;
};

}  // namespace lockstep
