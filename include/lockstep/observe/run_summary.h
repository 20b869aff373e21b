// Where the time of a whole run went.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/observe/slowdown.h"

namespace lockstep {

// Fed with log intervals by the reporter of rank 0. The first steps of a run, in which libraries set themselves up, are
// left out of rates and percentiles.
class RunSummary {
 public:
  // `step_seconds`: each step of the interval, on this rank; `ranks`: every rank's means over it.
  void add(std::span<const float> step_seconds, int64_t samples, std::span<const RankTimes> ranks);

  // Lines for people; none when there were too few steps to say anything.
  std::vector<std::string> lines() const;

 private:
  std::vector<float> step_seconds_;  // without the first
  int64_t skipped_ = 0;              // steps
  int64_t steps_ = 0, samples_ = 0;
  std::vector<RankTimes> sums_;  // of all steps, by rank
};

}  // namespace lockstep
