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
  int64_t total_steps = 0;          // cosine, linear: the step at which the rate reaches 0
  double decay_rate = 1;            // exponential, step: factor of one step of the staircase
  double decay_steps = 1;           // length of one step of the staircase; exponential: a whole number of steps
  std::vector<int64_t> boundaries;  // piecewise: the first step of each piece except the first, ascending
  std::vector<double> factors;      // piecewise: the factor of each of these pieces

  // Returns the learning rate of the update from `step` to step + 1; steps count from 0.
  //   constant:          base
  //   exponential, step: base * decay_rate ^ floor(step / decay_steps), counted from step 0 even with warm-up
  //   piecewise:         base before the first boundary, then base * the factor of the last boundary reached
  //   cosine:            base / 2 * (1 + cos(pi * t)), t from 0 at the end of warm-up to 1 at total_steps and beyond
  //   linear:            base * (1 - t)
  // During warm-up, the rate is multiplied by (step + 1) / warmup_steps.
  double rate(int64_t step) const;
};

// The values that convert epochs and the scaling rule of the configuration for this run.
struct RunLength {
  int64_t samples_per_epoch = 0;
  int64_t global_batch = 0;
  int64_t total_steps = 0;
};
// Warm-up is rounded to the nearest step. The steps of the staircase of `exponential` are truncated to whole steps, at
// least one, as in TensorFlow's exponential_decay with staircase=True. Those of `step` start with the first step at or
// after the epoch, as in PyTorch's StepLR; so do the pieces of `piecewise`.
LearningRateSchedule make_learning_rate_schedule(const Config& config, const RunLength& length);

// Returns the rate before schedule and warm-up: optimizer.lr, or lr x global batch / 256 with the linear scaling rule
// (Goyal et al. 2017).
double base_learning_rate(const Config::Optimizer& config, int64_t global_batch);

}  // namespace lockstep
