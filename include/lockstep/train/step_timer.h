// Where the time of the steps goes, over one log interval.
#pragma once

#include <cstdint>

#include "lockstep/base/clock.h"

namespace lockstep {

enum class StepPart : uint8_t { data, compute, reduce, save };
inline constexpr int kStepParts = 4;

// Each moment of a step belongs to exactly one part: enter() charges the time since the last call to the part that was
// running. Evaluation and other work between steps is left out by pause(), up to the next enter(). One thread.
class StepTimer {
 public:
  void enter(StepPart part) {
    charge();
    part_ = part;
    running_ = true;
  }
  void pause() {
    charge();
    running_ = false;
  }
  void finish_step(int64_t samples) {
    charge();
    ++steps_;
    samples_ += samples;
  }
  void restart() {
    charge();
    for (double& s : seconds_) s = 0;
    steps_ = samples_ = 0;
  }

  int64_t steps() const { return steps_; }
  int64_t samples() const { return samples_; }
  double seconds(StepPart part) const { return seconds_[static_cast<int>(part)]; }
  double total_seconds() const {
    double sum = 0;
    for (double s : seconds_) sum += s;
    return sum;
  }

 private:
  void charge() {
    const double now = monotonic_seconds();
    if (running_) seconds_[static_cast<int>(part_)] += now - since_;
    since_ = now;
  }

  double seconds_[kStepParts] = {};
  int64_t steps_ = 0, samples_ = 0;
  double since_ = 0;
  StepPart part_ = StepPart::data;
  bool running_ = false;
};

}  // namespace lockstep
