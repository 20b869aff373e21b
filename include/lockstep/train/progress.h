// The progress of a run between two steps.
#pragma once

#include <cstdint>

namespace lockstep {

// The loss scale of train.precision = "fp16"; 1 for other precisions.
struct LossScale {
  double value = 1;
  int64_t steady_steps = 0;  // number of updates since the value last changed
};

// The same on every rank, and independent of how the global sample stream is divided among ranks.
struct Progress {
  int64_t step = 0;
  int64_t position = 0;  // samples of the global stream consumed so far
  int64_t updates = 0;   // number of steps that changed the weights, without skipped steps
  LossScale loss_scale;
  // Used only at the start of a run that continues one with checkpoint.keep_best; later the checkpointer of rank 0
  // tracks the best checkpoint.
  double best_score = -1;  // highest score of all evaluations; -1 if there was none
  int64_t best_step = -1;  // step of the checkpoint with this score
};

}  // namespace lockstep
