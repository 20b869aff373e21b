// How long a run is and when it evaluates: pure functions of the configuration and of where the run stands.
#pragma once

#include <cstdint>

#include "lockstep/config/config.h"
#include "lockstep/train/progress.h"

namespace lockstep {

struct DataPlan {
  int64_t samples_per_epoch = 1;
  int64_t global_batch = 1;
};

// The samples that `epochs` passes take, rounded up. A product that misses a whole number by nothing but the rounding
// of its factors counts as that number: 0.07 epochs of 100 samples are 7.
int64_t samples_of(double epochs, int64_t samples_per_epoch);

// The step at which the run ends: train.steps or train.epochs, whichever comes first. Epochs count from the position
// in the sample stream, so they hold when a run goes on with another global batch.
int64_t total_steps(const Config::Train& train, const DataPlan& plan, const Progress& start);

// The first position after `position` that is a multiple of `every_epochs`, in samples; never (the largest number)
// when every_epochs is 0.
int64_t next_evaluation(double every_epochs, int64_t samples_per_epoch, int64_t position);

// Whether a run that has come to `at` by steps of this plan evaluates there. A fresh start is no such place.
bool evaluation_due_at(const Config::Eval& eval, const DataPlan& plan, const Progress& at);

}  // namespace lockstep
