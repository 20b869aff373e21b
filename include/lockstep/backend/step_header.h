// The numbers of a step besides the gradients: each rank's contribution to the all-reduce, the host's decisions before
// the step, and the results that it reads after it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep {

// The gradient arena holds, in this order: gradients, batch-norm moments, the step header; so that the last bucket of
// the all-reduce carries all three.
inline constexpr int64_t kStepHeaderElements = 16;

// Each count takes two elements, multiples of kCountUnit and the rest, so that sums over up to 4096 ranks are exact in
// float32. The sum of a flag is the number of ranks that raised it. Every rank sees the same sums, and so makes the
// same decision at the same step.
inline constexpr int64_t kCountUnit = 4096;
struct StepHeader {
  float samples = 0;  // weight of this rank's samples
  float loss = 0;     // summed over samples, auxiliary heads weighted
  float correct1 = 0, correct5 = 0;
  float stop = 0;        // a signal asked this rank to save and stop, or its time is over
  float save = 0;        // rank 0: a checkpoint is due by the clock
  float not_finite = 0;  // this rank's loss is NaN or infinite
  float samples_units = 0, correct1_units = 0, correct5_units = 0;
  std::array<float, kStepHeaderElements - 10> reserved{};
};
static_assert(sizeof(StepHeader) == kStepHeaderElements * sizeof(float));

// The header's members by index, for kernels: the arena may be of another element type.
enum HeaderElement : int {
  kHeaderSamples = offsetof(StepHeader, samples) / sizeof(float),
  kHeaderLoss = offsetof(StepHeader, loss) / sizeof(float),
  kHeaderCorrect1 = offsetof(StepHeader, correct1) / sizeof(float),
  kHeaderCorrect5 = offsetof(StepHeader, correct5) / sizeof(float),
  kHeaderStop = offsetof(StepHeader, stop) / sizeof(float),
  kHeaderSave = offsetof(StepHeader, save) / sizeof(float),
  kHeaderNotFinite = offsetof(StepHeader, not_finite) / sizeof(float),
  kHeaderSamplesUnits = offsetof(StepHeader, samples_units) / sizeof(float),
  kHeaderCorrect1Units = offsetof(StepHeader, correct1_units) / sizeof(float),
  kHeaderCorrect5Units = offsetof(StepHeader, correct5_units) / sizeof(float),
};

// The host's decisions about a step before it starts. A device reads it from memory, so that a captured step can be
// replayed with other values.
struct StepControl {
  double learning_rate = 0;
  double samples = 0;  // weight of this rank's samples
  double stop = 0;     // this rank's flags, as in the header
  double save = 0;
};

// The numbers that the device keeps from step to step. They are part of a run's state and equal on all ranks.
struct UpdateState {
  double updates = 0;       // steps that have changed the weights
  double halted = 0;        // 1: a non-finite value occurred, and nothing changes any more (DecideUpdate::halt)
  double loss_scale = 1;    // by which the gradients of the current step were multiplied
  double steady_steps = 0;  // updates since the loss scale last changed
};

// The results of a step that the host reads once it is done: sums over all ranks, and whether the update was applied.
struct StepOutcome {
  double samples = 0;
  double loss = 0;
  double correct1 = 0, correct5 = 0;
  double stop = 0, save = 0, not_finite = 0;
  double norm = 0;                          // of the mean gradient, before clipping
  double applied = 0;                       // 1: the weights were updated
  double updates = 0;                       // UpdateState::updates after the step
  double loss_scale = 1, steady_steps = 0;  // UpdateState's after the step
  double overflowed = 0;                    // 1: skipped because the loss scale was too large, which is no failure
  double bad_gradient = -1;                 // index of the first non-finite gradient; -1: none
  double own_loss = 0;                      // of this rank's samples alone, 0 when the step begins
};

}  // namespace lockstep
