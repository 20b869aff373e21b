// Summarizes the time split and the speed of a whole run.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/observe/slowdown.h"

namespace lockstep {

// The reporter adds every log interval and uses the lines of rank 0. Rates and percentiles leave out the first steps of
// a run, in which libraries initialize.
class RunSummary {
 public:
  // Adds an interval: the duration of each step on this rank, the samples of all ranks, and every rank's mean times.
  void add(std::span<const float> step_seconds, int64_t samples, std::span<const RankTimes> ranks);

  // Returns lines of text for the log; none if there were only warm-up steps.
  std::vector<std::string> lines() const;

 private:
  std::vector<float> step_seconds_;  // without warm-up steps
  int64_t skipped_ = 0;              // number of warm-up steps
  int64_t steps_ = 0, samples_ = 0;  // with warm-up steps
  size_t ranks_ = 0;
  std::array<double, kStepParts> seconds_{};  // over all steps and ranks, by StepPart
};

}  // namespace lockstep
