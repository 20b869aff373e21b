// Detects that a run has become permanently slower, and which part of the step on which rank causes it.
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
  double waited_for = 0;                   // how long other ranks waited for this one; see attribute_waits()

  double part(StepPart which) const { return parts[static_cast<size_t>(which)]; }
  double& part(StepPart which) { return parts[static_cast<size_t>(which)]; }
  double total() const;
  void add(const RankTimes& other, double weight);
};

// The rank for which a rank waited longest while only that rank's messages were missing, and the seconds per step.
struct StragglerWait {
  int rank = -1;  // -1 if there was no such wait
  double seconds = 0;
};

// Sets RankTimes::waited_for: the time for which the other ranks waited only for this rank, minus the time for which
// this rank waited only for one other, as a mean over the other ranks. The subtraction is needed because a rank with a
// slow link also waits for replies, but only from one rank at a time. `waits` is indexed by the waiting rank. With two
// ranks nothing is attributed, because either waits for the other whichever is slow.
void attribute_waits(std::span<RankTimes> ranks, std::span<const StragglerWait> waits);

// A slowdown with the part of the step and the rank that explain it.
struct Slowdown {
  double best_seconds = 0, seconds = 0;  // per step: in the best window and now
  StepPart part = StepPart::reduce;
  int rank = -1;             // -1 if no single rank causes it
  double added_seconds = 0;  // per step: by how much this part (of this rank) has become longer
};

// Gets the times of all ranks every few steps; not thread-safe. It evaluates windows of at least five steps and at
// least 0.2 s. Three consecutive windows below 70 % of the best window's rate are a slowdown. It is reported once, and
// again only after the rate has been above 85 % in between.
//
// A slowdown is attributed to the rank whose own work (reading, computing, copying) has grown by at least half of it
// and by more than twice the growth of any other rank; it is never attributed to a rank that waits. If the work of
// several ranks has grown, the part is reported without a rank. If no rank's work has grown enough, the all-reduce
// itself takes longer, and the rank is the one for which the others wait.
class SlowdownWatch {
 public:
  // Adds every rank's mean times over the `steps` since the last call. Returns a slowdown when it is to be reported.
  std::optional<Slowdown> add(std::span<const RankTimes> ranks, int64_t steps);

 private:
  std::optional<Slowdown> evaluate(std::span<const RankTimes> window);
  Slowdown explain(std::span<const RankTimes> now) const;

  std::vector<RankTimes> sums_;  // over the steps of the current window, by rank
  int64_t steps_ = 0;            // in the current window
  std::vector<RankTimes> best_;  // the best window, by rank
  int slow_in_a_row_ = 0;        // number of consecutive slow windows
  bool reported_ = false;
};

// Returns the number of steps until the next call of add(). Usually it is five, so that a slowdown is reported within
// twenty steps; it is larger if steps are so short that exchanging times would slow down the run.
int64_t steps_between_checks(double step_seconds);

}  // namespace lockstep
