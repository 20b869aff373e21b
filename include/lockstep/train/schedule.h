// The learning rate as a pure function of the step.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/config/config.h"

namespace lockstep {

struct LearningRateSchedule {
  ScheduleKind kind = ScheduleKind::constant;
  double base_rate = 0;
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;          // cosine, linear: where the rate reaches 0
  double decay_rate = 1;            // exponential, step: factor of one step of the staircase
  double decay_steps = 1;           // length of one step of the staircase; exponential: a whole number of steps
  std::vector<int64_t> boundaries;  // piecewise: first steps of the pieces after the first, ascending
  std::vector<double> factors;      // piecewise: of those pieces

  // The rate of the update from `step` to step + 1, step from 0.
  //   constant:          base
  //   exponential, step: base * decay_rate ^ floor(step / decay_steps), counted from step 0 with warm-up or without
  //   piecewise:         base before the first boundary, then base * the factor of the last boundary reached
  //   cosine:            base / 2 * (1 + cos(pi * t)), t from 0 at the end of warm-up to 1 at total_steps and beyond
  //   linear:            base * (1 - t)
  // During warm-up times (step + 1) / warmup_steps.
  double rate(int64_t step) const;
};

// What the configuration's epochs and scaling rule mean for this run.
struct RunLength {
  int64_t samples_per_epoch = 0;
  int64_t global_batch = 0;
  int64_t total_steps = 0;
};
// Warm-up is rounded to the nearest step. Stairs of `exponential` are cut to whole steps, at least one, as TensorFlow's
// exponential_decay with staircase has them; those of `step` begin with the first step at or past the epoch, as
// PyTorch's StepLR and `piecewise` do.
LearningRateSchedule make_learning_rate_schedule(const Config& config, const RunLength& length);

// The rate before schedule and warm-up: optimizer.lr, or by the linear rule (Goyal et al. 2017) lr x global batch /
// 256.
double base_learning_rate(const Config::Optimizer& config, int64_t global_batch);

}  // namespace lockstep
