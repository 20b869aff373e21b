// Where a run stands between two steps.
#pragma once

#include <cstdint>

namespace lockstep {

// What train.precision = fp16 multiplies gradients by, and the updates since that last changed; 1 otherwise.
struct LossScale {
  double value = 1;
  int64_t steady_steps = 0;
};

// A function of the global sample stream, the same on every rank.
struct Progress {
  int64_t step = 0;
  int64_t position = 0;  // samples of the global stream consumed so far
  int64_t updates = 0;   // steps that changed the weights (a skipped step does not)
  LossScale loss_scale;
  // Where a run begins, and checkpoint.keep_best was set before; from then on the checkpointer of rank 0 knows.
  double best_score = -1;  // highest score of all evaluations; -1: none yet
  int64_t best_step = -1;  // whose checkpoint has it
};

}  // namespace lockstep
