// Notices a run that has become slower for good, and whose work the time goes into.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/observe/step_timer.h"

namespace lockstep {

// Means a step of one rank, in seconds.
struct RankTimes {
  std::array<double, kStepParts> parts{};  // by StepPart
  double waited_for = 0;                   // by the others, as attribute_waits() says

  double part(StepPart which) const { return parts[static_cast<size_t>(which)]; }
  double& part(StepPart which) { return parts[static_cast<size_t>(which)]; }
  double total() const;
  void add(const RankTimes& other, double weight);
};

// Of all ranks, the one for which a rank waited alone for longest, and for how many seconds a step.
struct StragglerWait {
  int rank = -1;  // -1: none
  double seconds = 0;
};

// Notes in `ranks` for how long each rank kept the others waiting when they waited for nobody else, less what it waited
// so itself, in the mean over the others: a rank with a slow link waits for an answer, too, but only from one at a
// time. Of two ranks one waits for the other whoever is slow, so that none is blamed.
void attribute_waits(std::span<RankTimes> ranks, std::span<const StragglerWait> waits);

// The part and the rank that explain a fall.
struct Slowdown {
  double best_seconds = 0, seconds = 0;  // a step: in the best window, and now
  StepPart part = StepPart::reduce;
  int rank = -1;             // -1: no single one
  double added_seconds = 0;  // a step, of this part (and rank)
};

// Fed with the times of all ranks every few steps, on one thread. It judges windows of five steps or more that take a
// fifth of a second or more. When three windows in a row have less than 70 % of the best window's rate, that is a fall;
// it is told once, and again only after the run has been back above 85 %.
//
// A fall is blamed on the rank whose own work has grown by at least half of it, and by more than twice what any other's
// has: reading, computing, copying; never on one that waits. Where the work of several has grown, their part is told
// but no rank. Where no rank's has, the reduction itself takes longer, by the rank for which the others wait alone.
class SlowdownWatch {
 public:
  // Every rank's means over the `steps` since the last call.
  std::optional<Slowdown> add(std::span<const RankTimes> ranks, int64_t steps);

 private:
  std::optional<Slowdown> judge(std::span<const RankTimes> window);
  Slowdown explain(std::span<const RankTimes> now) const;

  std::vector<RankTimes> sums_;  // of the window that is not yet full
  int64_t steps_ = 0;            // in it
  std::vector<RankTimes> best_;
  int slow_in_a_row_ = 0;
  bool reported_ = false;
};

// Steps to the next call of add() where they take so long: as few as five, so that a fall is told within twenty, but
// more where steps are so short that exchanging times would cost.
int64_t steps_between_checks(double step_seconds);

}  // namespace lockstep
