// Detects that a run has become permanently slower, and which part of the step on which rank causes it.
// docs/watching.md explains the rules, docs/adr/0014 why there are no more of them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/observe/step_timer.h"

namespace lockstep {

// The mean times of one rank, in seconds per step.
struct RankTimes {
  std::array<double, kStepParts> parts{};  // indexed by StepPart
  // The rank for which this one waited longest while only that rank's messages were missing; -1 if there was none.
  int64_t straggler = -1;
  double straggler_wait = 0;

  double part(StepPart which) const { return parts[static_cast<size_t>(which)]; }
  double& part(StepPart which) { return parts[static_cast<size_t>(which)]; }
  double total() const;
};

// A slowdown with the part of the step and the rank that explain it.
struct Slowdown {
  double best_seconds = 0, seconds = 0;  // per step: in the best window and now
  StepPart part = StepPart::reduce;
  int rank = -1;             // -1 if no single rank causes it
  double added_seconds = 0;  // per step: by how much this part (of this rank) has become longer
};

// Returns the number of steps of a window: five, or more if steps are short.
int64_t window_steps(double step_seconds);

// Compares the times of all ranks window by window. Every rank owns one; not thread-safe. A slowdown is reported once
// and is then what later windows are compared with.
class SlowdownWatch {
 public:
  // Returns whether a window ends after `steps` steps of this process. It does so on all ranks at the same step.
  bool due(int64_t steps) const { return steps >= due_at_; }
  // Returns this rank's times since the last call. `straggler_wait_seconds` is that of CommStatistics.
  RankTimes measure(const StepTotals& totals, std::span<const double> straggler_wait_seconds);
  // Adds the window's times of every rank. Returns a slowdown when it is to be reported.
  std::optional<Slowdown> add(std::span<const RankTimes> ranks);

 private:
  Slowdown explain(std::span<const RankTimes> now) const;

  StepTotals totals_;                           // at the end of the last window
  std::vector<double> straggler_wait_seconds_;  // at that time
  int64_t due_at_ = window_steps(1);            // number of steps at which the window ends
  std::vector<RankTimes> best_;                 // the best window since the last report, by rank
  int slow_in_a_row_ = 0;                       // number of consecutive slow windows
};

}  // namespace lockstep
