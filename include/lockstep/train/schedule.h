// The learning rate as a pure function of the step.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/train/config.h"

namespace lockstep {

struct LearningRateSchedule {
  std::string name = "constant";  // constant | exponential | cosine
  double base_rate = 0;
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;  // cosine: where the rate reaches 0
  double decay_rate = 1;    // exponential: factor of one stair
  int64_t decay_steps = 1;  // exponential: length of one stair

  // The rate of the update from `step` to step + 1, step from 0.
  //   constant:    base
  //   exponential: base * decay_rate ^ floor(step / decay_steps), counted from step 0 with warm-up or without, as
  //                TensorFlow's exponential_decay with staircase
  //   cosine:      base / 2 * (1 + cos(pi * t)), t from 0 at the end of warm-up to 1 at total_steps and beyond
  // During warm-up times (step + 1) / warmup_steps.
  double rate(int64_t step) const;
};

// What the configuration's epochs and scaling rule mean for this run.
struct RunLength {
  int64_t samples_per_epoch = 0;
  int64_t global_batch = 0;
  int64_t total_steps = 0;
};
// Warm-up is rounded to the nearest step; a stair is cut to whole steps as in TensorFlow, at least one.
// Throws Error(config) for a schedule that does not exist.
LearningRateSchedule make_learning_rate_schedule(const Config& config, const RunLength& length);

}  // namespace lockstep
