// The length of a run and the times of its evaluations, as pure functions of the configuration and the progress.
#pragma once

#include <cstdint>

#include "lockstep/config/config.h"
#include "lockstep/train/progress.h"

namespace lockstep {

struct DataPlan {
  int64_t samples_per_epoch = 1;
  int64_t global_batch = 1;
};

// Returns the number of samples of `epochs` passes, rounded up. A product that differs from a whole number only by
// floating-point rounding counts as that number: 0.07 epochs of 100 samples are 7.
int64_t samples_of(double epochs, int64_t samples_per_epoch);

// Returns the step at which the run ends: train.steps or train.epochs, whichever comes first. Epochs are counted by the
// position in the sample stream, so they stay correct if a run continues with another global batch.
int64_t total_steps(const Config::Train& train, const DataPlan& plan, const Progress& start);

// Returns the first position (in samples) after `position` that is a multiple of `every_epochs`, or the largest
// integer, which means never, if every_epochs is 0.
int64_t next_evaluation(double every_epochs, int64_t samples_per_epoch, int64_t position);

// Returns whether a run that has reached `at` with steps of this plan evaluates there. This is false for a fresh start.
bool evaluation_due_at(const Config::Eval& eval, const DataPlan& plan, const Progress& at);

}  // namespace lockstep
