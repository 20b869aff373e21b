// Measures the parts of the steps over one log interval.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/clock.h"

namespace lockstep {

enum class StepPart : uint8_t { data, compute, reduce, save };
inline constexpr int kStepParts = 4;

// Totals since the timer was created.
struct StepTotals {
  std::array<double, kStepParts> seconds{};  // indexed by StepPart
  int64_t steps = 0;
};

// Each moment of a step belongs to exactly one part: enter() charges the time since the last call to the part that was
// running. pause() stops the timer until the next enter(), so that evaluation and other work between steps does not
// count. Not thread-safe.
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
  // Ends a step of `samples` samples.
  void finish_step(int64_t samples) {
    charge();
    const double total = total_seconds();
    step_seconds_.push_back(static_cast<float>(total - finished_));
    finished_ = total;
    ++steps_;
    ++totals_.steps;
    samples_ += samples;
  }
  // Starts a new log interval.
  void restart() {
    charge();
    for (double& s : seconds_) s = 0;
    steps_ = samples_ = 0;
    step_seconds_.clear();
    finished_ = 0;
  }

  int64_t steps() const { return steps_; }
  int64_t samples() const { return samples_; }
  std::span<const float> step_seconds() const { return step_seconds_; }  // the duration of each step
  const StepTotals& totals() const { return totals_; }                   // restart() does not reset these
  double seconds(StepPart part) const { return seconds_[static_cast<int>(part)]; }
  double total_seconds() const {
    double sum = 0;
    for (double s : seconds_) sum += s;
    return sum;
  }

 private:
  void charge() {
    const double now = monotonic_seconds();
    if (running_) {
      seconds_[static_cast<int>(part_)] += now - since_;
      totals_.seconds[static_cast<size_t>(part_)] += now - since_;
    }
    since_ = now;
  }

  double seconds_[kStepParts] = {};
  int64_t steps_ = 0, samples_ = 0;
  std::vector<float> step_seconds_;
  double finished_ = 0;  // total_seconds() at the end of the last step
  StepTotals totals_;
  double since_ = 0;
  StepPart part_ = StepPart::data;
  bool running_ = false;
};

}  // namespace lockstep
